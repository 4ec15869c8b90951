"""Documentation packages by the ordinary clients, in a cache that is checked whenever it is used.

`apt-get download` needs no root. Where the system's package lists are missing or out of date, lists
of our own are fetched below the cache; the system's are never touched. `pip download` of a source
distribution would run the package's own build code just to learn its name; pip is given a stand-in
build backend that answers from PKG-INFO, so no code of the package runs and no compiler or build
tool is needed. The newest version is asked for first and then pinned, since pip would otherwise try
every older version when one cannot be had.

Cache: `<sha256, 16 digits>-<file name>` and beside it a .json with origin, name, version and the
whole sha256; a file that no longer has it is removed and fetched again.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eyas.recipe import EyasError

__all__ = ["Cache", "PackageFile", "Unreachable", "apt_packages", "default_cache", "pypi_package"]

_TIMEOUT = 900
_APT = ("-qq", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30")
_log = logging.getLogger("eyas.corpus")


class Unreachable(EyasError):
    """A package can neither be fetched nor is it in the cache."""


@dataclass(frozen=True)
class PackageFile:
    """A package as it lies in the cache; `sha256` has been checked. `origin` is apt or pypi."""

    origin: str
    name: str
    version: str
    sha256: str
    path: Path


@dataclass(frozen=True)
class _Candidate:
    """A package that apt knows."""

    name: str
    version: str
    sha256: str


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/eyas/packages`, or below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "eyas" / "packages"


class Cache:
    """The folder of fetched packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EyasError(
                f"cannot make the package cache {folder}: {error.strerror}; set XDG_CACHE_HOME"
            ) from error

    def find(
        self, origin: str, pattern: str, version: str = "", sha256: str = ""
    ) -> list[PackageFile]:
        """Whole files whose name matches; of each name the one fetched last."""
        found: dict[str, PackageFile] = {}
        notes = sorted(self.folder.glob("*.json"), key=lambda p: (p.stat().st_mtime_ns, p.name))
        for note in notes:
            file = _described(note)
            wanted = (
                file is not None
                and file.origin == origin
                and fnmatch.fnmatchcase(file.name, pattern)
                and file.version == (version or file.version)
                and file.sha256 == (sha256 or file.sha256)
            )
            if file is not None and wanted and self._whole(file, note):
                found[file.name] = file
        return sorted(found.values(), key=lambda file: file.name)

    def add(self, fetched: Path, origin: str, name: str, version: str) -> PackageFile:
        """Take a fetched file in."""
        digest = _sha256(fetched)
        path = self.folder / f"{digest[:16]}-{fetched.name}"
        fetched.replace(path)
        body = {"origin": origin, "name": name, "version": version, "sha256": digest}
        note = path.with_name(f"{path.name}.json")
        with self.room() as folder:
            (folder / "note").write_text(json.dumps(body | {"file": path.name}), encoding="utf-8")
            (folder / "note").replace(note)
        return PackageFile(origin, name, version, digest, path)

    @contextlib.contextmanager
    def room(self) -> Iterator[Path]:
        """A temporary folder in the cache."""
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=self.folder) as name:
            yield Path(name)

    def _whole(self, file: PackageFile, note: Path) -> bool:
        try:
            whole = _sha256(file.path) == file.sha256
        except OSError:
            whole = False
        if not whole:
            _log.warning("the cached package %s is damaged and is fetched again", file.path)
            note.unlink(missing_ok=True)
            file.path.unlink(missing_ok=True)
        return whole


def apt_packages(patterns: Sequence[str], cache: Cache) -> tuple[list[PackageFile], list[str]]:
    """The packages that the patterns (a name, or a glob with *) stand for, and the patterns that
    stand for nothing here. A glob leaves out what ends in -common.

    Raises Unreachable if something that apt knows can neither be fetched nor is cached.
    """
    options: tuple[str, ...] = ()
    known = _apt_known(patterns, options)
    if not all(known.values()):
        options, trouble = _apt_update(cache)
        known = _apt_known(patterns, options)
        for pattern in [p for p, found in known.items() if trouble and not found]:
            if not cache.find("apt", pattern):
                raise Unreachable(f"apt:{pattern} ({trouble})")
    files = [f for p, found in known.items() if not found for f in cache.find("apt", p)]
    have = {f.name for f in files}
    candidates = {c.name: c for found in known.values() for c in found if c.name not in have}
    files += _apt_fetch(sorted(candidates.values(), key=lambda c: c.name), options, cache)
    missing = [p for p in patterns if not fnmatch.filter([f.name for f in files], p)]
    return sorted(files, key=lambda f: f.name), missing


def _apt_fetch(
    candidates: Sequence[_Candidate], options: tuple[str, ...], cache: Cache
) -> list[PackageFile]:
    cached = {c.name: cache.find("apt", c.name, sha256=c.sha256) for c in candidates}
    todo = [c for c in candidates if not cached[c.name]]
    if todo and _apt_download(todo, options, cache):
        # a mirror no longer has what old lists name: look again with new ones
        options, trouble = _apt_update(cache)
        known = _apt_known([c.name for c in todo], options)
        again = [found[0] for found in known.values() if found]
        trouble = _apt_download(again, options, cache) or trouble
        lost = [c.name for c in todo if not cache.find("apt", c.name)]
        if lost:
            names = ", ".join(f"apt:{name}" for name in lost)
            raise Unreachable(f"{names} ({trouble or 'the mirror has them no more'})")
    return [(cached[c.name] or cache.find("apt", c.name))[0] for c in candidates]


def _apt_known(patterns: Sequence[str], options: tuple[str, ...]) -> dict[str, list[_Candidate]]:
    """Pattern to what apt could download for it."""
    names: dict[str, list[str]] = {}
    for pattern in patterns:
        stem = pattern.partition("*")[0]
        listed = _run("apt-cache", *options, "pkgnames", stem)[0].split() if "*" in pattern else []
        names[pattern] = [n for n in fnmatch.filter(listed, pattern) if not n.endswith("-common")]
        if "*" not in pattern:
            names[pattern] = [pattern]
    wanted = sorted({n for found in names.values() for n in found})
    known = _apt_records(wanted, options) if wanted else {}
    return {p: [known[n] for n in sorted(found) if n in known] for p, found in names.items()}


def _apt_records(names: Sequence[str], options: tuple[str, ...]) -> dict[str, _Candidate]:
    text, _ = _run("apt-cache", *options, "show", "--no-all-versions", *names)
    found: dict[str, _Candidate] = {}
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", paragraph, re.M))
        if len(fields) == 3:
            candidate = _Candidate(fields["Package"], fields["Version"], fields["SHA256"])
            found.setdefault(candidate.name, candidate)
    return found


def _apt_update(cache: Cache) -> tuple[tuple[str, ...], str]:
    """Package lists of our own: the options that use them, and what went wrong."""
    state = cache.folder / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    places = (f"Dir::State::lists={state}/lists", f"Dir::Cache={state}/cache")
    options = tuple(word for place in places for word in ("-o", place))
    strict = ("-o", "APT::Update::Error-Mode=any")
    return options, _run("apt-get", *_APT, *options, *strict, "update")[1]


def _apt_download(candidates: Sequence[_Candidate], options: tuple[str, ...], cache: Cache) -> str:
    """Download into the cache; returns what went wrong. What did arrive is kept."""
    if not candidates:
        return ""
    with cache.room() as folder:
        names = [f"{c.name}={c.version}" for c in candidates]
        _, trouble = _run("apt-get", *_APT, *options, "download", *names, folder=folder)
        arrived = {_sha256(path): path for path in folder.glob("*.deb")}
        for c in candidates:
            if c.sha256 in arrived:
                cache.add(arrived[c.sha256], "apt", c.name, c.version)
            else:
                trouble = trouble or f"{c.name} {c.version} did not arrive with its checksum"
    return trouble


_BACKEND = """
import os, re, sys, types
backend = os.environ.get("_PYPROJECT_HOOKS_BUILD_BACKEND") or os.environ.get("PEP517_BUILD_BACKEND")
paths = os.environ.get("_PYPROJECT_HOOKS_BACKEND_PATH") or os.environ.get("PEP517_BACKEND_PATH")
def prepare(folder, config_settings=None):
    with open("PKG-INFO", encoding="utf-8") as file:
        head = file.read().partition("\\n\\n")[0].splitlines()
    about = dict(line.split(": ", 1) for line in head if line.startswith(("Name: ", "Version: ")))
    name = re.sub("[-_.]+", "_", about["Name"]) + "-" + about["Version"].replace("-", "_")
    name += ".dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\\nName: %(Name)s\\nVersion: %(Version)s\\n" % about)
    return name
if backend:
    module, _, path = backend.partition(":")
    stub = sys.modules[module] = types.ModuleType(module)
    stub.__file__ = os.path.join((paths or "").split(os.pathsep)[0], "stub.py")
    stub.get_requires_for_build_wheel = lambda config_settings=None: []
    stub.prepare_metadata_for_build_wheel = prepare
    for part in path.split(".") if path else ():
        setattr(stub, part, stub)
"""


def pypi_package(spec: str, cache: Cache) -> PackageFile:
    """The source distribution of `NAME` or `NAME==VERSION`; a cached one is taken as it is.

    Raises Unreachable if it can neither be fetched nor is cached.
    """
    name, _, version = spec.partition("==")
    name = re.sub(r"[-_.]+", "-", name).lower()
    if cached := cache.find("pypi", name, version):
        return cached[0]
    pip = (sys.executable, "-m", "pip")
    sources = ("--no-binary", ":all:")
    if not version:
        text, trouble = _run(*pip, "index", "versions", *sources, name)
        match = re.match(r"\S+ \((\S+)\)", text)
        if match is None:
            raise Unreachable(f"pypi:{spec} ({trouble or 'no version with a source distribution'})")
        version = match[1]
    with cache.room() as folder:
        (folder / "stub").mkdir()
        (folder / "stub" / "sitecustomize.py").write_text(_BACKEND, encoding="utf-8")
        quick = ("--no-deps", "--no-build-isolation", "--use-pep517", "--dest", str(folder / "got"))
        environment = {"PYTHONPATH": str(folder / "stub")}
        command = (*pip, "download", "-q", *sources, *quick, f"{name}=={version}")
        _, trouble = _run(*command, environment=environment)
        got = list((folder / "got").glob("*"))
        if trouble or len(got) != 1:
            raise Unreachable(f"pypi:{spec} ({trouble or 'pip left no file'})")
        return cache.add(got[0], "pypi", name, version)


def _run(
    *command: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> tuple[str, str]:
    """Standard output, and in one line what went wrong ("" if nothing did)."""
    plain = {"LC_ALL": "C", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    name = "pip" if command[1:3] == ("-m", "pip") else command[0]
    if shutil.which(command[0]) is None:
        return "", f"{name} is not installed"
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | plain | (environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return "", f"{name} did not end within {_TIMEOUT} s"
    if done.returncode == 0:
        return done.stdout, ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(E|Err|ERROR)[:\s]", line)]
    said = (errors or lines or [f"exit code {done.returncode}"])[0][:300]
    return done.stdout, f"{name}: {said}"


def _described(note: Path) -> PackageFile | None:
    try:
        body = json.loads(note.read_text(encoding="utf-8"))
        path = note.parent / Path(body["file"]).name
        return PackageFile(body["origin"], body["name"], body["version"], body["sha256"], path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
