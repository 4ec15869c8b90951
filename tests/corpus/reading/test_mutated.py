"""Inputs damaged at random: no crash, no hang; what was not hit comes whole, the rest counted."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import brotli
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.crawl import gzipped, html_of, record, response
from tests.corpus.reading.memory import megabytes_more
from tests.corpus.steps.hostile import SHAPES
from tests.texts import page

from eyas.corpus.reading import records
from eyas.corpus.reading.decode import decode_text
from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.reading.read import Page, Refused, read_pages
from eyas.corpus.steps.extract import EXTRACTORS, clean_text, extract_page
from eyas.store import Store

LIMIT = 200_000
RECORDS = 8
Found = Page | Refused


@dataclass(frozen=True)
class Case:
    """A sound file: its frames, by name what holds for each. `checked`: damage in a frame cannot
    go unnoticed. `alone`: a frame is lost for itself."""

    name: str
    frames: tuple[bytes, ...]
    alone: bool = True
    checked: bool = False

    @property
    def data(self) -> bytes:
        return b"".join(self.frames)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def arc(number: int) -> bytes:
    block = response(html_of(page(number)))
    head = f"http://x/{number} 127.0.0.1 20240501120000 text/html {len(block)}\n"
    return head.encode() + block + b"\n"


def line(number: int) -> bytes:
    return json.dumps({"text": page(number), "url": f"http://x/{number}"}).encode() + b"\n"


def cases() -> list[Case]:
    numbers = range(RECORDS)
    warc = [record(f"http://x/{n}", response(html_of(page(n)))) for n in numbers]
    wet = [record(f"http://x/{n}", page(n).encode(), "conversion") for n in numbers]
    lines = [line(n) for n in numbers]
    packed = {
        "a.warc": warc,
        "b.warc.gz": [gzipped(r) for r in warc],
        "c.warc.zst": [zstd(r) for r in warc],
        "d.warc.gz": [gzipped(b"".join(warc))],
        "e.warc.zst": [zstd(b"".join(warc))],
        "f.wet.gz": [gzipped(r) for r in wet],
        "g.arc": [arc(n) for n in numbers],
        "h.arc.gz": [gzipped(arc(n)) for n in numbers],
        "i.jsonl": lines,
        "j.jsonl.gz": [gzipped(b"".join(lines))],
        "k.jsonl.zst": [zstd(b"".join(lines))],
        "l.html.gz": [gzipped(html_of(page(1)))],
        "m.parquet": [parquet()],
        "n.warc.gz": [gzipped(warc[n] + warc[n + 1]) for n in range(0, RECORDS, 2)],
        "o.warc.gz": [gzipped(block) for block in blocks(b"".join(warc))],
        "p.warc.zst": [zstd(block) for block in blocks(b"".join(warc))],
    }
    whole = {"d.warc.gz", "e.warc.zst", "j.jsonl.gz", "k.jsonl.zst", "l.html.gz", "m.parquet"}
    whole |= {"o.warc.gz", "p.warc.zst"}
    checked = {"b.warc.gz", "f.wet.gz", "h.arc.gz"}
    return [Case(n, tuple(f), n not in whole, n in checked) for n, f in packed.items()]


def blocks(data: bytes, size: int = 1500) -> list[bytes]:
    """Pieces that begin anywhere in a record."""
    return [data[n : n + size] for n in range(0, len(data), size)]


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    rows = {"text": [page(n) for n in range(RECORDS)], "url": [f"http://x/{n}" for n in range(8)]}
    pq.write_table(pa.table(rows), sink, row_group_size=2, write_page_checksum=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def cut(data: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(data))
    return data[:at], at, len(data)


def flip(data: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :], at, at + 1


def overwrite(data: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.choice((1, 4, 64, 5000)))
    new = chance.choice((bytes(end - at), chance.randbytes(end - at), b"<" * (end - at)))
    return data[:at] + new + data[end:], at, end


def remove(data: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.choice((1, 7, 300, 5000)))
    return data[:at] + data[end:], at, end


def insert(data: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(data))
    new = chance.randbytes(chance.choice((1, 16, 3000)))
    return data[:at] + new + data[at:], at, at + 1


MUTATIONS = (cut, flip, overwrite, remove, insert)
CASES = cases()
ROUND = len(CASES) * len(MUTATIONS)  # seeds after which each case had each damage once


def read(store: Store, folder: Path, name: str, data: bytes) -> list[Found]:
    path = folder / name
    path.write_bytes(data)
    kinds = ("jsonl", "html", "parquet")
    kind = next((k for k in kinds if f".{k}" in name), "warc")
    return list(read_pages(store, InputFile(name, kind, "path", len(data)), LIMIT))


def content(item: Found) -> tuple[str, bytes, str]:
    return (item.url, item.body, item.text) if isinstance(item, Page) else (item.url, b"", "")


def check(store: Store, folder: Path, seed: int) -> None:
    """One damaged file: its damage comes from `seed`."""
    chance = random.Random(seed)
    case = CASES[seed % len(CASES)]
    mutation = MUTATIONS[seed // len(CASES) % len(MUTATIONS)]
    data, start, end = mutation(case.data, chance)
    sound = {content(item) for item in read(store, folder, case.name, case.data)}
    found = read(store, folder, case.name, data)
    what = (seed, case.name, mutation.__name__, start, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_read_ahead", _no_reading_ahead)
        assert found == read(store, folder, case.name, data), what
    assert len({item.offset for item in found}) == len(found), what
    for item in found:
        if isinstance(item, Page):
            decode_text(item.body, item.charset)
        else:
            assert item.reason, what
    untouched = _untouched(case, data, start, end) if case.alone else []
    kept = {content(item) for item in found if isinstance(item, Page)}
    urls = {f"http://x/{n}" for n in untouched}
    assert {c for c in sound if c[0] in urls} <= kept, what
    if case.checked and (kept != sound) and not _at_a_border(case, data, mutation, start):
        assert kept < sound, what
        assert any(isinstance(item, Refused) for item in found), what


def _no_reading_ahead(
    _source: object, _first: int, at: object, _limit: int
) -> Generator[object, None, object]:
    """In the careful way only, which must give the same."""
    return at
    yield


def _untouched(case: Case, data: bytes, start: int, end: int) -> list[int]:
    """Numbers of the records whose frames keep every byte. The newline before a line of JSON is
    in the frames of both; so is that before a record of ARC where the length in the header of the
    one before does not lead there, since bytes came or went or the header itself was hit."""
    moved = len(data) != len(case.data)
    per_frame, position, numbers = RECORDS // len(case.frames), 0, []
    header_end = 0  # of the frame before
    for n, frame in enumerate(case.frames):
        by_newline = case.name.endswith(".jsonl") or (
            case.name.endswith(".arc") and (moved or start < header_end)
        )
        if position + len(frame) <= start or position - by_newline >= end:
            numbers += range(n * per_frame, (n + 1) * per_frame)
        header_end = position + frame.find(b"\n") + 1
        position += len(frame)
    return numbers


def _at_a_border(case: Case, data: bytes, mutation: Callable[..., object], start: int) -> bool:
    """A file cut or mended exactly between two frames is a sound file; zeros at its end pad it."""
    parts = [b"".join(case.frames[:n]) for n in range(RECORDS + 1)]
    padded = data.rstrip(b"\0") in [part.rstrip(b"\0") for part in parts]
    return padded or (mutation in (cut, remove) and start in map(len, parts))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # keys without the folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_files_that_are_damaged_here_are_sound(
    folder_store: Store, tmp_path: Path, case: Case
) -> None:
    found = read(folder_store, tmp_path, case.name, case.data)
    assert all(isinstance(item, Page) for item in found)
    if not case.name.endswith("html.gz"):
        assert [item.url for item in found] == [f"http://x/{n}" for n in range(RECORDS)]


@pytest.mark.parametrize("part", range(13))
def test_a_damaged_file_gives_its_sound_part_and_counts_the_rest(
    folder_store: Store, tmp_path: Path, part: int
) -> None:
    """1,040 files, of which 780 are WARC, ARC, WET or HTML."""
    for seed in range(part * ROUND, (part + 1) * ROUND):
        check(folder_store, tmp_path, seed)


@pytest.mark.parametrize("seed", [8502, 29799])
def test_damage_that_was_once_not_counted(folder_store: Store, tmp_path: Path, seed: int) -> None:
    """The newline between two records of an ARC file, whose second one was then passed over; a gzip
    member that inflates to newlines, whose page was believed before its checksum was compared."""
    check(folder_store, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100, 138))
def test_three_thousand_damaged_files(folder_store: Store, tmp_path: Path, part: int) -> None:
    for seed in range(part * ROUND, (part + 1) * ROUND):
        check(folder_store, tmp_path, seed)


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda b: brotli.compress(b, quality=1),
    "zstd": zstd,
    "identity": bytes,
    "gzip, br": lambda b: brotli.compress(gzipped(b), quality=1),
    "nonsense": bytes,
}
CHARSETS = ("utf-8", "utf-16", "windows-1256", "shift_jis", "\x80\xff", "idna", "x" * 500, "gbk")


def bad_response(chance: random.Random) -> bytes:
    """An HTTP response with something wrong in its body, encoding, chunks, charset or head."""
    text = page(chance.randrange(50)) * chance.choice((1, 1, 40))
    body = html_of(text).replace(b"utf-8", chance.choice(CHARSETS).encode("utf-8"))
    encoding = chance.choice(list(ENCODINGS))
    packed = ENCODINGS[encoding](chance.choice((body, bytes(2_000_000), b"")))
    damaged = packed
    if packed and chance.random() < 0.6:
        damaged = chance.choice((cut, flip, overwrite, remove, insert))(packed, chance)[0]
    head = [f"Content-Type: text/html; charset={chance.choice(CHARSETS)}"]
    head.append(f"Content-Encoding: {encoding}")
    if chance.random() < 0.5:
        size = len(damaged) + chance.choice((0, 0, -3, 5, 10**9))
        damaged = (
            f"{max(0, size):x}\r\n".encode()
            + damaged
            + chance.choice((b"\r\n0\r\n\r\n", b"\r\n0\r\n", b"\r\n", b"", b"\r\nzz\r\n"))
        )
        head.append("Transfer-Encoding: chunked")
    status = chance.choice(("HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 2", "HTTP/9", "HTTP/"))
    line_end = chance.choice(("\r\n", "\r\n", "\n"))
    ends = chance.choice((line_end, line_end, ""))
    return f"{status}{line_end}{line_end.join(head)}{line_end}{ends}".encode() + damaged


def respond(store: Store, folder: Path, seeds: Sequence[int]) -> None:
    blocks = [bad_response(random.Random(seed)) for seed in seeds]
    members = [gzipped(record(f"http://x/{n}", b), 1) for n, b in enumerate(blocks)]
    found = read(store, folder, "a.warc.gz", b"".join(members))
    assert [item.url for item in found] == [f"http://x/{n}" for n in range(len(blocks))]
    for item in found:
        if isinstance(item, Page):
            assert len(item.body) <= LIMIT
            decode_text(item.body, item.charset)


@pytest.mark.parametrize("part", range(4))
def test_every_damaged_response_is_one_page_or_one_reject(
    folder_store: Store, tmp_path: Path, part: int
) -> None:
    respond(folder_store, tmp_path, range(part * 100, (part + 1) * 100))


@pytest.mark.soak
def test_three_thousand_damaged_responses(folder_store: Store, tmp_path: Path) -> None:
    for start in range(1000, 4000, 100):
        respond(folder_store, tmp_path, range(start, start + 100))


# What the bytes of a page are really in; what it says of them is one of CHARSETS.
WRITTEN = ("utf-8", "utf-16", "utf-16-be", "utf-32", "cp1256", "cp932", "gb18030", "iso2022_jp")
VERDICTS = {"", "no_text", "too_many_nodes", "too_deep", "too_many_attributes"}
# trafilatura fills up the rows of a table, until it is more than the page.
MORE_TEXT = re.compile(r"ValueError: \d+ characters of text from a page of \d+")


def bad_page(seed: int) -> tuple[bytes, str]:
    """A page of hostile mark-up, damaged, and the character set that its HTTP header names."""
    chance = random.Random(seed)
    shape = list(SHAPES.values())[seed % len(SHAPES)]
    mutation = MUTATIONS[seed // len(SHAPES) % len(MUTATIONS)]
    text = page(seed, chance.choice(("en", "ar")), sentences=4)
    head = f'<!doctype html><meta charset="{chance.choice(CHARSETS)}"><p>{text}</p>'
    html = head + shape(chance.choice((500, 4000, 12_000)))
    written = html.encode(chance.choice(WRITTEN), "replace")
    return mutation(written, chance)[0], chance.choice(CHARSETS)


def extract(store: Store, folder: Path, seed: int) -> None:
    """A damaged page as a file and as a crawl's record, each by every extractor."""
    body, charset = bad_page(seed)
    block = response(body, f"Content-Type: text/html; charset={charset}")
    files = {
        "a.html": body,
        "a.html.gz": gzipped(body, 1),
        "a.warc.gz": gzipped(record("http://x/0", block), 1),
    }
    pages = [item for name, data in files.items() for item in read(store, folder, name, data)]
    assert [getattr(item, "body", item) for item in pages] == [body] * len(files), seed
    for item in pages[1:]:  # the first is the second unpacked
        assert isinstance(item, Page)
        for extractor in EXTRACTORS:
            found = extract_page(item, extractor, 100_000)
            what = (seed, item.source, extractor, found.reason, found.detail)
            assert bool(found.text) != bool(found.reason), what
            assert found.reason in VERDICTS or MORE_TEXT.fullmatch(found.detail), what
            assert found.text == clean_text(found.text), what


@pytest.mark.slow
@pytest.mark.parametrize("mutation", range(len(MUTATIONS)), ids=lambda n: MUTATIONS[n].__name__)
def test_a_damaged_page_of_hostile_mark_up_is_a_text_or_a_reason(
    folder_store: Store, tmp_path: Path, mutation: int
) -> None:
    """260 pages, each read as three files."""
    for seed in range(mutation * len(SHAPES), (mutation + 1) * len(SHAPES)):
        extract(folder_store, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100, 112))
def test_three_thousand_damaged_pages(folder_store: Store, tmp_path: Path, part: int) -> None:
    count = len(SHAPES) * len(MUTATIONS)
    for seed in range(part * count, (part + 1) * count):
        extract(folder_store, tmp_path, seed)


def zeros(megabytes: int) -> bytes:
    """So many megabytes of zeros as one small gzip member."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    value = 0
    for _ in range(megabytes):
        value = zlib.crc32(bytes(1 << 20), value)
    size = (megabytes << 20) & 0xFFFFFFFF
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    tail = value.to_bytes(4, "little") + size.to_bytes(4, "little")
    return head + block * megabytes + packer.flush() + tail


def bombs(megabytes: int) -> dict[str, bytes]:
    bomb, size = zeros(megabytes), megabytes << 20
    web = response(bomb, "Content-Type: text/html\r\nContent-Encoding: gzip")
    head = (
        record("http://x/0", b"").removesuffix(b"\r\n\r\n").replace(b": 0\r\n", b": %d\r\n" % size)
    )
    assert b": %d\r\n" % size in head
    return {
        "body.warc.gz": gzipped(record("http://x/0", web), 1),
        "record.warc.gz": gzipped(head) + bomb,  # the claimed bytes are a member of their own
        "noise.warc.gz": bomb,
        "a.html.gz": bomb,
        "a.jsonl.gz": bomb,
    }


@pytest.mark.parametrize("name", ["body.warc.gz", "record.warc.gz", "noise.warc.gz"])
def test_a_bomb_in_a_crawl_file_is_refused_without_its_memory(
    folder_store: Store, tmp_path: Path, name: str
) -> None:
    blow_up(folder_store, tmp_path, name, bombs(256)[name])


@pytest.mark.parametrize("name", ["a.html.gz", "a.jsonl.gz"])
def test_a_bomb_in_a_file_is_refused_without_its_memory(
    folder_store: Store, tmp_path: Path, name: str
) -> None:
    blow_up(folder_store, tmp_path, name, bombs(256)[name])


@pytest.mark.soak
def test_a_gigabyte_does_not_take_a_gigabyte(folder_store: Store, tmp_path: Path) -> None:
    for name, data in bombs(1024).items():
        blow_up(folder_store, tmp_path, name, data)


def blow_up(store: Store, folder: Path, name: str, data: bytes) -> None:
    found: list[Found] = []
    more = megabytes_more(lambda: found.extend(read(store, folder, name, data)))
    assert found
    assert not [item for item in found if isinstance(item, Page)]
    assert more < 80
