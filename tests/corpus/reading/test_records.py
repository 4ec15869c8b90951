"""Nothing in a crawl file is lost in silence, and damage costs what it hit and no more."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from fastwarc.stream_io import ZstdWriter, zstd_train_dictionary_from_samples
from tests.corpus.crawl import SHARED, gzipped, html_of, member, record, response
from tests.texts import page

from eyas.corpus.reading.parse_record import Record
from eyas.corpus.reading.records import Broken, walk_records

LIMIT = 1 << 20


def walk(data: bytes) -> list[Record | Broken]:
    return list(walk_records(io.BytesIO(data), LIMIT))


def urls(items: Sequence[Record | Broken]) -> list[str]:
    return [i.url for i in items if isinstance(i, Record)]


def broken(items: Sequence[Record | Broken]) -> list[Broken]:
    return [i for i in items if isinstance(i, Broken)]


def x(*numbers: int) -> list[str]:
    return [f"http://x/{n}" for n in numbers]


def plain(number: int, lie: int = 0) -> bytes:
    return record(f"http://x/{number}", response(html_of(page(number))), lie=lie)


def damaged(data: bytes, where: int) -> bytes:
    return data[:where] + bytes([data[where] ^ 0xFF]) + data[where + 1 :]


def test_every_record_comes_with_the_offset_of_its_own_gzip_member() -> None:
    data = b"".join(member(n) for n in range(4))
    found = walk(data)
    assert urls(found) == x(0, 1, 2, 3)
    for item in found:
        assert isinstance(item, Record)
        alone = walk(data[item.offset :])[0]
        assert isinstance(alone, Record)
        assert alone.block == item.block


@pytest.mark.parametrize("framing", ["gzip", "plain", "zstd", "one gzip member"])
def test_all_framings_hold_the_same_records(framing: str) -> None:
    records = [plain(n) for n in range(4)]
    data = {
        "gzip": lambda: b"".join(gzipped(r) for r in records),
        "plain": lambda: b"".join(records),
        "zstd": lambda: b"".join(pa.compress(r, codec="zstd", asbytes=True) for r in records),
        "one gzip member": lambda: gzipped(b"".join(records)),
    }[framing]()
    found = walk(data)
    assert urls(found) == x(0, 1, 2, 3)
    assert not broken(found)
    assert len({i.offset for i in found}) == 4


def gzip_blocks(data: bytes, size: int) -> list[bytes]:
    """As bgzip and pgzip pack: members of a size, and an empty one behind them."""
    return [gzipped(data[n : n + size]) for n in range(0, len(data) + size, size)]


def zstd_blocks(data: bytes, size: int) -> list[bytes]:
    """As pzstd packs."""
    pieces = range(0, len(data), size)
    return [pa.compress(data[n : n + size], codec="zstd", asbytes=True) for n in pieces]


@pytest.mark.parametrize("pack", [gzip_blocks, zstd_blocks])
@pytest.mark.parametrize("size", [100, 777, 5000])
def test_members_that_begin_within_records_go_on_with_them(
    pack: Callable[[bytes, int], list[bytes]], size: int
) -> None:
    """Of a file of such blocks nearly all was lost, as two records or three."""
    data = b"".join(map(plain, range(6)))
    found = walk(b"".join(pack(data, size)))
    assert urls(found) == x(0, 1, 2, 3, 4, 5)
    assert not broken(found)
    assert len({i.offset for i in found}) == 6


def test_a_damaged_member_within_a_record_costs_no_record_that_was_whole() -> None:
    data = b"".join(map(plain, range(6)))
    members = gzip_blocks(data, len(data) // 4)
    members[2] = damaged(members[2], len(members[2]) // 2)
    found = walk(b"".join(members))
    assert urls(found) == x(0, 1, 2)
    assert broken(found)


def test_records_without_the_blank_line_between_are_whole() -> None:
    data = b"".join(plain(n)[: -2 * (n % 3)] if n % 3 else plain(n) for n in range(6))
    found = walk(data)
    assert urls(found) == x(0, 1, 2, 3, 4, 5)
    assert not broken(found)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda m: damaged(m, len(m) // 2), id="a flipped byte in the middle"),
        pytest.param(lambda m: damaged(m, len(m) - 6), id="a flipped byte in the checksum"),
        pytest.param(lambda m: m[: len(m) // 2], id="cut short"),
        pytest.param(lambda m: b"\0" * len(m), id="zeros"),
        pytest.param(lambda m: b"<html>what is this</html>" * 9, id="other bytes"),
        pytest.param(lambda _: member(2, lie=500), id="a length too long"),
        pytest.param(lambda _: member(2, lie=-300), id="a length too short"),
        pytest.param(lambda _: member(2, lie=10**10), id="a length past the end of the file"),
    ],
)
def test_a_damaged_gzip_member_costs_one_record_and_is_counted(damage: object) -> None:
    members = [member(n) for n in range(5)]
    members[2] = damage(members[2])  # type: ignore[operator]
    found = walk(b"".join(members))
    assert urls(found) == x(0, 1, 3, 4)
    assert len(broken(found)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(plain(2, lie=500), id="a length too long"),
        pytest.param(plain(2, lie=-300), id="a length too short"),
        pytest.param(plain(2)[:700], id="cut short"),
        pytest.param(plain(2).replace(b"Content-Length", b"Content-Lenght"), id="no length"),
    ],
)
def test_a_damaged_plain_record_costs_one_record_and_is_counted(bad: bytes) -> None:
    found = walk(plain(0) + plain(1) + bad + plain(3) + plain(4))
    assert urls(found) == x(0, 1, 3, 4)
    assert len(broken(found)) == 1


def test_a_file_cut_in_its_last_record_says_truncated() -> None:
    data = member(0) + member(1)[:-200]
    found = walk(data)
    assert urls(found) == x(0)
    assert [b.reason for b in broken(found)] == ["truncated"]
    assert broken(found)[0].url == "http://x/1"


def test_a_truncated_file_of_one_gzip_member_keeps_what_came_before() -> None:
    data = gzipped(b"".join(plain(n) for n in range(5)))
    found = walk(data[: len(data) - len(data) // 4])
    assert len(urls(found)) >= 2
    assert urls(found) == x(*range(len(urls(found))))
    assert len(broken(found)) == 1


@pytest.mark.parametrize("data", [b"", b"\0", b"\x1f\x8b", b"WARC/1.0\r\n", b"x" * 100_000])
def test_what_is_no_archive_is_no_crash(data: bytes) -> None:
    found = walk(data)
    assert not urls(found)
    assert len(broken(found)) == bool(data)


def test_a_large_record_is_cut_and_the_next_one_read() -> None:
    big = record("http://x/big", response(b"<html>" + b"a" * (3 * LIMIT)))
    found = walk(gzipped(big) + member(1))
    assert urls(found) == ["http://x/big", "http://x/1"]
    assert isinstance(found[0], Record)
    assert len(found[0].block) == LIMIT < found[0].length


@pytest.mark.parametrize("sizes", [(1, 3, 1), (3, 1, 1), (2, 2, 2), (1, 1, 4), (1, 4)])
@pytest.mark.parametrize("pack", [gzip.compress, lambda r: pa.compress(r, "zstd", asbytes=True)])
def test_frames_of_several_records_lose_none(sizes: tuple[int, ...], pack: object) -> None:
    """fastwarc places the second record of such a frame at the beginning of the next."""
    numbers = iter(range(sum(sizes)))
    frames = [b"".join(plain(next(numbers)) for _ in range(n)) for n in sizes]
    data = b"".join(pack(f) for f in frames)  # type: ignore[operator]
    found = walk(data)
    assert urls(found) == x(*range(sum(sizes)))
    assert not broken(found)
    assert len({i.offset for i in found}) == sum(sizes)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda r: r.replace(b"Content-Length", b"content-length", 1), id="lower case"),
        pytest.param(lambda r: r.replace(b"\r\n", b"\n", 8), id="bare newlines"),
        pytest.param(lambda r: r.replace(b"WARC/1.0", b"WARC/0.18"), id="an old version"),
        pytest.param(
            lambda r: r.replace(b"\r\nWARC-Date", b" \r\n\t a\r\n b\r\nWARC-Date"), id="folded"
        ),
        pytest.param(lambda r: r.replace(b"\r\nWARC-Date", b"\r\nx\r\nWARC-Date"), id="no colon"),
        pytest.param(lambda r: r.replace(b"WARC-Type", b"warc-type"), id="lower case type"),
    ],
)
def test_unusual_headers_are_read(change: object, pack: object) -> None:
    """Of some of these fastwarc makes an empty record, or the end of the file."""
    records = [change(plain(n)) for n in range(4)]  # type: ignore[operator]
    found = walk(b"".join(pack(r) for r in records))  # type: ignore[operator]
    assert [url.replace(" a b", "") for url in urls(found)] == x(0, 1, 2, 3)
    assert not broken(found)
    assert all(isinstance(i, Record) and i.block.endswith(b"</html>") for i in found)


@pytest.mark.parametrize("length", [b"-5", b"12abc", b"", b"9" * 30, b"1e3", b"0x10"])
def test_a_length_that_is_no_number_costs_its_record(length: bytes) -> None:
    bad = plain(1)
    start = bad.index(b"Content-Length: ") + 16
    bad = bad[:start] + length + bad[bad.index(b"\r\n", start) :]
    for pack in (bytes, gzip.compress):
        found = walk(b"".join(pack(r) for r in (plain(0), bad, plain(2))))
        assert urls(found) == x(0, 2)
        assert len(broken(found)) == 1


def test_a_header_that_is_cut_does_not_take_the_next_record_for_its_own() -> None:
    found = walk(plain(0) + plain(1)[:40] + plain(2))
    assert urls(found) == x(0, 2)
    assert len(broken(found)) == 1


def test_damage_in_the_first_bytes_costs_the_first_record_only() -> None:
    for pack in (bytes, gzip.compress, lambda r: pa.compress(r, "zstd", asbytes=True)):
        frames = [pack(plain(n)) for n in range(3)]
        found = walk(damaged(damaged(frames[0], 0), 1) + frames[1] + frames[2])
        assert urls(found) == x(1, 2)
        assert len(broken(found)) == 1


def test_padding_at_the_end_is_no_damage_and_zeros_before_a_record_are() -> None:
    for pack in (bytes, gzip.compress):
        frames = [pack(plain(n)) for n in range(2)]
        assert not broken(walk(b"".join(frames) + b"\0" * 5000))
        found = walk(frames[0] + b"\0" * 5000 + frames[1])
        assert (urls(found), len(broken(found))) == (x(0, 1), 1)


@pytest.mark.parametrize("packed", [False, True])
def test_a_zstd_file_may_bring_its_dictionary(packed: bool) -> None:
    records = [plain(n) for n in range(6)]
    dictionary = zstd_train_dictionary_from_samples(records * 20, 4096)
    frames = []
    for each in records:
        sink = io.BytesIO()
        writer = ZstdWriter(sink, dictionary=dictionary)
        writer.write(each)
        writer.close()
        frames.append(sink.getvalue()[8 + len(dictionary) :])  # which it puts in front
    body = pa.compress(dictionary, "zstd", asbytes=True) if packed else bytes(dictionary)
    first = b"\x5d\x2a\x4d\x18" + len(body).to_bytes(4, "little") + body
    found = walk(first + b"".join(frames))
    assert urls(found) == x(*range(6))
    assert not broken(found)
    assert found[0].offset == len(first)
    assert len(broken(walk(b"".join(frames)))) == 6  # without it nothing can be read


def test_a_damaged_zstd_frame_costs_one_record() -> None:
    frames = [pa.compress(plain(n), "zstd", asbytes=True) for n in range(5)]
    frames[2] = frames[2][: len(frames[2]) // 2]
    frames[3] = pa.compress(plain(3, lie=-9), "zstd", asbytes=True)
    found = walk(b"".join(frames))
    assert urls(found) == x(0, 1, 4)
    assert len(broken(found)) == 2


def test_a_damaged_arc_record_costs_itself() -> None:
    def arc(number: int, lie: int = 0) -> bytes:
        block = response(html_of(page(number)))
        head = f"http://x/{number} 127.0.0.1 20240501120000 text/html {len(block) + lie}\n"
        return head.encode() + block + b"\n"

    for pack in (bytes, gzip.compress):
        found = walk(b"".join(pack(a) for a in (arc(0), arc(1, lie=-7), arc(2), arc(3, lie=90))))
        assert urls(found) == x(0, 2)
        assert len(broken(found)) == 2


def test_many_false_beginnings_are_no_hang() -> None:
    rain = b"\x1f\x8b\x08\x00" * 100_000
    found = walk(member(0) + rain + member(1))
    assert (urls(found), len(broken(found))) == (x(0, 1), 1)
    rain = b"WARC/1.0\r\nX:" * 5000
    found = walk(plain(0) + rain + plain(1))
    assert (urls(found), len(broken(found))) == (x(0, 1), 5000)


SOUND_PART = {
    "dolma-sample-0000.warc.gz": (48, 0),
    "resi-clipped.warc.gz": (0, 1),
    "resi-warcfile.warc.gz": (50, 0),
    "warcio-bad.arc": (1, 3),
    "warcio-example-bad-non-chunked.warc.gz": (6, 0),
    "warcio-example-trunc.warc": (3, 1),
    "warcio-example-wget-bad-target-uri.warc.gz": (6, 0),
    "warcio-example.arc.gz": (1, 0),
    "warcio-example.warc.gz": (6, 0),
    "whirlwind.warc.gz": (4, 0),
    "whirlwind.warc.wet.gz": (2, 0),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real crawl files are not at {SHARED}")
@pytest.mark.parametrize("name", sorted(SOUND_PART))
def test_real_files_give_what_their_sound_part_holds(name: str) -> None:
    found = walk((SHARED / name).read_bytes())
    assert (len(urls(found)), len(broken(found))) == SOUND_PART[name]
    assert not any("<" in url for url in urls(found))


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real crawl files are not at {SHARED}")
def test_an_arc_record_has_the_offset_of_its_gzip_member() -> None:
    data = (SHARED / "warcio-example.arc.gz").read_bytes()
    (item,) = walk(data)
    assert gzip.decompress(data[item.offset :]).startswith(b"http://example.com/ ")
    assert isinstance(item, Record)
    assert item.date == "2014-02-16T05:02:21Z"
