"""Tiny Debian packages, source distributions and an apt repository of files, made with ar and tar
in Python, so that real apt-get and real pip can be run without a network."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

MODIFIED = 1_600_000_000

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: debian/*
License: X

Files: *
Copyright: somebody
License: GPL-2+ or CC-BY-SA-3.0
"""


def page(text: str) -> bytes:
    return f"<html><body><p>{text}</p></body></html>".encode()


def _squeezed(data: bytes, suffix: str) -> bytes:
    if suffix == ".zst":
        return pa.compress(data, codec="zstd", asbytes=True)
    pack = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}
    return pack[suffix](data)


def tar(files: Mapping[str, bytes | str], prefix: str = "./") -> bytes:
    """Bytes are files, strings are symbolic links to that."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name if name.startswith("/") else prefix + name)
            info.mtime = MODIFIED
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _ar(members: Sequence[tuple[str, bytes]]) -> bytes:
    out = b"!<arch>\n"
    for name, data in members:
        head = f"{name:<16}{MODIFIED:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        out += head.encode() + data + b"\n" * (len(data) % 2)
    return out


def deb(
    folder: Path,
    name: str,
    files: Mapping[str, bytes | str],
    version: str = "1:2.0~x+1",
    suffix: str = ".xz",
    copyright: str = COPYRIGHT,
) -> Path:
    """`<name>_<version>_all.deb` in `folder`; paths in `files` are below the root."""
    about = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@example.org>\n"
        "Homepage: https://example.org/\nDescription: pages\n"
    )
    where = f"usr/share/doc/{name}/copyright"
    data = tar({**files, where: copyright.encode()})
    control = tar({"control": about.encode()})
    path = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", lzma.compress(control)),
        (f"data.tar{suffix}", _squeezed(data, suffix)),
    ]
    path.write_bytes(_ar(members))
    return path


def sdist(
    folder: Path, name: str, files: Mapping[str, bytes], version: str = "1.5", backend: str = ""
) -> Path:
    """`<name>-<version>.tar.gz` in `folder`. Its build code, if it runs, leaves a file `ran`."""
    about = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Home-page: https://example.org/py\nClassifier: License :: OSI Approved :: MIT License\n\nx"
    )
    ran = f"open({str(folder / 'ran')!r}, 'w').close(); raise SystemExit('build code ran')"
    needs = '[build-system]\nrequires = ["no-such"]\nbuild-backend = "no_such.main:it"\n'
    project = {"pyproject.toml": needs.encode()} if backend else {}
    every = {"PKG-INFO": about.encode(), "setup.py": ran.encode(), **project, **files}
    path = folder / f"{name}-{version}.tar.gz"
    path.write_bytes(gzip.compress(tar(every, f"{name}-{version}/")))
    return path


def index(repository: Path) -> None:
    """The Packages file of the .deb files in `repository`."""
    entries = []
    for path in sorted(repository.glob("*.deb")):
        name, version, _ = path.stem.split("_")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        entries.append(
            f"Package: {name}\nVersion: {version.replace('%3a', ':')}\nArchitecture: all\n"
            f"Maintainer: A <a@example.org>\nFilename: ./{path.name}\nSize: {path.stat().st_size}\n"
            f"SHA256: {digest}\nDescription: pages\n"
        )
    (repository / "Packages").write_text("\n".join(entries))


def apt_config(folder: Path, source: str) -> Path:
    """A configuration in which apt knows only `source`, and its lists are still to be fetched."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [trusted=yes] {source} ./\n")
    settings = {
        "Dir::State": f"{folder}/state/",
        "Dir::State::status": f"{folder}/status",
        "Dir::Cache": f"{folder}/cache/",
        "Dir::Etc::sourcelist": f"{folder}/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Acquire::Retries": "0",
        "Acquire::http::Proxy": "DIRECT",
        "APT::Sandbox::User": "",
    }
    path = folder / "apt.conf"
    path.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return path
