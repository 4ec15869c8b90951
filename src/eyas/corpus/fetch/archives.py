"""Pages out of a Debian package or a Python source distribution, without unpacking either.

A .deb is an ar archive of control.tar and data.tar (deb(5)); a source distribution is a tar.gz with
PKG-INFO. Both are read as a stream: nothing is written to disk, so no path in an archive can lead
anywhere, and memory holds one page. Links are not pages (they are second names of one), nor is what
is too large to be one.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from eyas.recipe import EyasError

from .selection import is_language

__all__ = ["Contents", "content_type", "inspect", "read_pages"]

MAX_PAGE = 64 * 2**20
_MAX_NOTE = 2**20
_HTML = re.compile(r"x?html?", re.I)
_CHARSET = re.compile(
    r"utf-?8|iso-8859-\d+|latin1|windows-\d+|euc-jp|euc-kr|iso-2022-jp|koi8-r|shift_jis|big5|gb2312|"
    "gbk",
    re.I,
)


@dataclass(frozen=True)
class Contents:
    """What an archive says of itself, and the paths of its HTML files with their sizes."""

    name: str
    version: str
    licence: str
    homepage: str
    pages: dict[str, int]
    too_large: int


def content_type(path: str) -> str:
    """The HTTP Content-Type of a file, with the charset where its name tells it."""
    name = path.rpartition("/")[2].lower()
    kind = "application/xhtml+xml" if ".xht" in name else "text/html"
    charset = next((p for p in name.split(".") if _CHARSET.fullmatch(p)), "")
    charset = {"utf8": "utf-8", "latin1": "iso-8859-1"}.get(charset, charset)
    return f"{kind}; charset={charset}" if charset else kind


def inspect(path: Path) -> Contents:
    """Read an archive once, without the pages. Raises EyasError if it is damaged."""
    pages: dict[str, int] = {}
    too_large = 0
    notes: dict[str, str] = {}
    with _reading(path):
        for tar, member, name in _members(path):
            if name.endswith(("/copyright", "PKG-INFO")) and member.size < _MAX_NOTE:
                notes.setdefault(name, _read(tar, member).decode(errors="replace"))
            elif _is_page(name) and member.size > MAX_PAGE:
                too_large += 1
            elif _is_page(name):
                pages.setdefault(name, member.size)
        if path.suffix == ".deb":
            name, version, licence, homepage = _about_deb(path, notes)
        else:
            name, version, licence, homepage = _about_sdist(notes)
    return Contents(name, version, licence, homepage, pages, too_large)


def read_pages(path: Path, chosen: frozenset[str]) -> Iterator[tuple[str, int, bytes]]:
    """(path, modified, content) of the chosen pages, in the archive's order."""
    seen: set[str] = set()
    with _reading(path):
        for tar, member, name in _members(path):
            if name in chosen and name not in seen and member.size <= MAX_PAGE:
                seen.add(name)
                yield name, int(member.mtime), _read(tar, member)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    broken = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError, OSError)
    try:
        yield
    except broken as error:
        raise EyasError(
            f"cannot read the package {path}: {error}; remove the file and run again"
        ) from (error)


def _members(path: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str]]:
    """Regular files with their cleaned path; for a source distribution below its one folder."""
    with path.open("rb") as file:
        if path.suffix == ".deb":
            stream = _section(file, "data.tar")
        else:
            stream = _decompressed(file, path.name)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name = _clean(member.name)
                if path.suffix != ".deb":
                    name = name.partition("/")[2]
                if member.isfile() and name:
                    yield tar, member, name


def _clean(name: str) -> str:
    """A relative path without `.`; "" for one that climbs."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "" if ".." in parts else "/".join(parts)


def _is_page(name: str) -> bool:
    """x.html, x.en.html, x.html.fr.utf8; not x.html.gz, x.html.j2 or .html."""
    first, *parts = name.rpartition("/")[2].split(".")
    while parts and (_CHARSET.fullmatch(parts[-1]) or is_language(parts[-1].lower())):
        parts.pop()
    return bool(first and parts and _HTML.fullmatch(parts[-1]))


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    data = file.read() if file else b""
    if len(data) != member.size:
        raise EOFError(f"{member.name} ends early")
    return data


def _section(file: IO[bytes], wanted: str) -> Any:
    """A member of an ar archive, decompressed."""
    if file.read(8) != b"!<arch>\n":
        raise ValueError("not a Debian package")
    while len(head := file.read(60)) == 60:
        if head[58:] != b"`\n":
            raise ValueError("a header of the ar archive is damaged")
        name, size = head[:16].decode("ascii", "replace").strip().rstrip("/"), int(head[48:58])
        if name.startswith(wanted):
            return _decompressed(io.BufferedReader(_Window(file, size)), name)
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"it holds no {wanted}")


class _Window(io.RawIOBase):
    """The next `size` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def _decompressed(file: Any, name: str) -> Any:
    suffix = name.rpartition(".")[2]
    if suffix == "tar":
        return file
    if suffix in ("gz", "tgz"):
        return gzip.GzipFile(fileobj=file)
    if suffix == "xz":
        return lzma.LZMAFile(file)
    if suffix == "bz2":
        return bz2.BZ2File(file)
    if suffix == "zst":
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    raise ValueError(f"{name} is packed in a way that is not known here")


def _about_deb(path: Path, notes: dict[str, str]) -> tuple[str, str, str, str]:
    control = ""
    with (
        path.open("rb") as file,
        tarfile.open(fileobj=_section(file, "control.tar"), mode="r|") as tar,
    ):
        for member in tar:
            if _clean(member.name) == "control" and member.isfile():
                control = _read(tar, member).decode(errors="replace")
                break
    head = Parser().parsestr(control, headersonly=True)
    if not head["Package"] or not head["Version"]:
        raise ValueError("its control file names no package and version")
    where = f"usr/share/doc/{head['Package']}/copyright"
    licence = _debian_licence(notes.get(where, "")) or f"see {where}"
    return head["Package"], head["Version"], licence, head["Homepage"] or ""


def _debian_licence(text: str) -> str:
    """The short name for `Files: *` (or the first) in a machine-readable copyright file, or the
    common licence that a free-form one points to."""
    for pattern in (
        r"^Files: \*\n(?:(?!\n\n).)*?^Licen[sc]e:[ \t]*([^\n]+)",
        r"^Licen[sc]e:[ \t]*([^\n]+)",
        r"/usr/share/common-licenses/([A-Za-z0-9.+-]+)",
    ):
        if match := re.search(pattern, text, re.M | re.S):
            return match[1].strip().rstrip(".")
    return ""


def _about_sdist(notes: dict[str, str]) -> tuple[str, str, str, str]:
    head = Parser().parsestr(notes.get("PKG-INFO", ""), headersonly=True)
    if not head["Name"] or not head["Version"]:
        raise ValueError("its PKG-INFO names no package and version")
    licence = head["License-Expression"] or head["License"] or ""
    if not licence or "\n" in licence or len(licence) > 100 or licence == "UNKNOWN":
        classified = (c for c in head.get_all("Classifier", []) if c.startswith("License :: "))
        licence = next(classified, "").rpartition(" :: ")[2] or "see PKG-INFO"
    links = [u.partition(", ") for u in head.get_all("Project-URL", [])]
    homepage = next((url for label, _, url in links if "home" in label.lower()), "")
    return head["Name"], head["Version"], licence, head["Home-page"] or homepage
