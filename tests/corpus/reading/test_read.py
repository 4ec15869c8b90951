"""From bytes to pages: every possible page comes out once, decoded, or refused with a reason."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from pathlib import Path

import brotli
import pyarrow as pa
import pytest
from tests.corpus.crawl import gzipped, html_of, member, record, response

from eyas.corpus.reading.decode import TooLarge, decode_content, decode_text
from eyas.corpus.reading.inputs import InputChanged, InputFile
from eyas.corpus.reading.read import Page, Refused, read_pages
from eyas.store import Store, crc32c

LIMIT = 100_000


def read(store: Store, path: Path, limit: int = LIMIT) -> list[Page | Refused]:
    kind = "jsonl" if "jsonl" in path.name else "html" if "html" in path.name else "warc"
    return list(read_pages(store, InputFile(str(path), kind, "path", path.stat().st_size), limit))


def warc(path: Path, *blocks: bytes, kind: str = "response") -> Path:
    path.write_bytes(b"".join(record(f"http://x/{n}", b, kind) for n, b in enumerate(blocks)))
    return path


def reasons(items: list[Page | Refused]) -> list[str]:
    return [i.reason if isinstance(i, Refused) else "" for i in items]


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", lambda b: pa.compress(b, codec="zstd", asbytes=True)),
        ("identity", bytes),
        ("gzip", bytes),  # decoded by the crawler, header left
    ],
)
def test_content_encoding_is_undone(
    folder_store: Store, tmp_path: Path, encoding: str, encode: object
) -> None:
    body = html_of("Some words of text. " * 50)
    headers = f"Content-Type: text/html\r\nContent-Encoding: {encoding}"
    path = warc(tmp_path / "a.warc", response(encode(body), headers))  # type: ignore[operator]
    (found,) = read(folder_store, path)
    assert isinstance(found, Page)
    assert found.body == body
    assert (found.url, found.date, found.offset) == ("http://x/0", "2024-05-01T12:00:00Z", 0)


@pytest.mark.parametrize(
    ("chunks", "body"),
    [
        (b"5\r\n<html\r\n2;x=1\r\n>x\r\n0\r\nTrailer: y\r\n\r\n", b"<html>x"),
        (b"5\n<html\n2\n>x\n0\n\n", b"<html>x"),
        (b"<html>decoded, header left", b"<html>decoded, header left"),
        (b"add this\nto the page", b"add this\nto the page"),
    ],
)
def test_chunks_as_servers_write_them_are_undone(chunks: bytes, body: bytes) -> None:
    assert decode_content(chunks, "", True, LIMIT) == body


@pytest.mark.parametrize(
    "chunks", [b"5\r\n<html\r\n2\r\n>x\r\n", b"5\r\n<html\r\n9\r\n>x\r\n", b"1\r\nx\r\nzz\r\n"]
)
def test_chunks_that_end_early_are_broken(chunks: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        decode_content(chunks, "", True, LIMIT)


def test_gzip_content_of_several_members_is_read_whole() -> None:
    packed = gzipped(b"<html>") + gzipped(b"text")
    assert decode_content(packed, "gzip", False, LIMIT) == b"<html>text"


def test_a_truncated_html_file_is_broken(folder_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.html.gz"
    path.write_bytes(gzipped(html_of("Some words. " * 500))[:-9])
    assert reasons(read(folder_store, path)) == ["broken"]


def test_an_http_head_that_does_not_end_is_broken(folder_store: Store, tmp_path: Path) -> None:
    path = warc(tmp_path / "a.warc", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" * 3)
    assert reasons(read(folder_store, path)) == ["broken"]


def test_an_http_head_with_bare_newlines_ends_where_it_ends(
    folder_store: Store, tmp_path: Path
) -> None:
    block = b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n<html>a\r\n\r\nb"
    (found,) = read(folder_store, warc(tmp_path / "a.warc", block))
    assert isinstance(found, Page)
    assert found.body == b"<html>a\r\n\r\nb"


def test_another_field_may_hold_the_text(folder_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"content": "words", "text": "no"}\n{"text": "no"}\n', encoding="utf-8")
    file = InputFile(str(path), "jsonl", "path", path.stat().st_size)
    found = list(read_pages(folder_store, file, LIMIT, text_field="content"))
    assert reasons(found) == ["", "broken"]
    assert isinstance(found[0], Page)
    assert found[0].text == "words"


def test_a_line_of_endless_objects_is_refused_unparsed(folder_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "x", "a": [' + b"{}," * 1_100_000 + b"{}]}\n")
    assert reasons(read(folder_store, path, 1_000_000)) == ["too_large"]


def test_a_short_payload_is_never_passed_off_as_whole(folder_store: Store, tmp_path: Path) -> None:
    """A truncated gzip used to hang other readers; later versions gave the short payload."""
    whole = b"".join(member(n) for n in range(3))
    path = tmp_path / "a.warc.gz"
    for cut in range(1, len(member(2)), 40):
        path.write_bytes(whole[:-cut])
        assert reasons(read(folder_store, path))[:2] == ["", ""]
        assert reasons(read(folder_store, path))[2:] in (["truncated"], ["broken"])


def test_chunked_transfer_is_undone(folder_store: Store, tmp_path: Path) -> None:
    headers = "Content-Type: text/html\r\nTransfer-Encoding: chunked"
    path = warc(tmp_path / "a.warc", response(b"5\r\n<html\r\n2\r\n>x\r\n0\r\n\r\n", headers))
    (found,) = read(folder_store, path)
    assert isinstance(found, Page)
    assert found.body == b"<html>x"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_decompression_bomb_is_refused_within_the_limit(encoding: str) -> None:
    zeros = b"\0" * 30_000_000
    bomb = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "br": lambda b: brotli.compress(b, quality=1),
        "zstd": lambda b: pa.compress(b, codec="zstd", asbytes=True),
    }[encoding](zeros)
    with pytest.raises(TooLarge):
        decode_content(bomb, encoding, False, LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_content_that_ends_early_is_broken(encoding: str) -> None:
    body = bytes(range(256)) * 40
    whole = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "br": brotli.compress,
        "zstd": lambda b: pa.compress(b, codec="zstd", asbytes=True),
    }[encoding](body)
    assert decode_content(whole, encoding, False, LIMIT) == body
    with pytest.raises(ValueError, match=r"damaged|ends early"):
        decode_content(whole[:-5], encoding, False, LIMIT)


def test_only_successful_html_of_legal_size_is_a_page(folder_store: Store, tmp_path: Path) -> None:
    html = html_of("text")
    path = warc(
        tmp_path / "a.warc",
        response(html),
        response(html).replace(b"200 OK", b"404 Not Found"),
        response(b"\x89PNG", "Content-Type: image/png"),
        response(html + b"a" * LIMIT),
        response(html, "X-Nothing: here"),
        response(b"just words", "X-Nothing: here"),
        response(html.decode().encode("utf-16"), "X-Nothing: here"),
    )
    found = read(folder_store, path)
    assert reasons(found) == ["", "http_status", "not_html", "too_large", "", "not_html", ""]
    assert [i.value for i in found if isinstance(i, Refused)][:1] == [404]
    assert {i.date for i in found} == {"2024-05-01T12:00:00Z"}


def test_a_page_is_too_large_from_the_first_byte_past_the_limit(
    folder_store: Store, tmp_path: Path
) -> None:
    body = html_of("text")
    path = warc(tmp_path / "a.warc", response(body))
    assert reasons(read(folder_store, path, len(body))) == [""]
    assert reasons(read(folder_store, path, len(body) - 1)) == ["too_large"]
    page = tmp_path / "a.html"
    page.write_bytes(body)
    assert reasons(read(folder_store, page, len(body))) == [""]
    assert reasons(read(folder_store, page, len(body) - 1)) == ["too_large"]
    packed = tmp_path / "b.html.gz"
    packed.write_bytes(gzipped(body * 9))
    (refused,) = read(folder_store, packed, len(body))
    assert refused == Refused(str(packed), 0, str(packed), "too_large", len(body) + 1)


def test_wet_text_is_taken_as_it_is(folder_store: Store, tmp_path: Path) -> None:
    path = warc(tmp_path / "a.wet", "قصة قصيرة".encode(), kind="conversion")
    (found,) = read(folder_store, path)
    assert isinstance(found, Page)
    assert (found.text, found.body) == ("قصة قصيرة", b"")


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_broken_json_line_is_counted_and_named_and_costs_only_itself(
    folder_store: Store, tmp_path: Path, ending: str
) -> None:
    lines = [
        json.dumps({"text": "first", "url": "http://a"}),
        '{"text": "never ends',
        "",
        '["no object"]',
        json.dumps({"html": "<p>h</p>", "date": "2020"}),
        json.dumps({"text": "x" * (LIMIT + 1)}),
        '{"text": "lone \\ud800 surrogate"}',
    ]
    data = "\n".join(lines).encode()
    pack = {"": bytes, ".gz": gzip.compress, ".zst": lambda b: pa.compress(b, "zstd", asbytes=True)}
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(pack[ending](data))
    found = read(folder_store, path)
    assert reasons(found) == ["", "broken", "broken", "", "too_large", ""]
    assert isinstance(found[1], Refused)
    assert "line 2" in found[1].detail
    assert data[found[1].offset :].startswith(b'{"text": "never')
    assert isinstance(found[5], Page)
    assert found[5].text == "lone ? surrogate"


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_json_that_ends_early_keeps_its_sound_lines_and_says_so(
    folder_store: Store, tmp_path: Path, ending: str
) -> None:
    lines = (json.dumps({"text": f"text {n} {n * 7919}"}) for n in range(60_000))
    data = "\n".join(lines).encode()
    pack = {".gz": gzip.compress, ".zst": lambda b: pa.compress(b, "zstd", asbytes=True)}
    path = tmp_path / f"a.jsonl{ending}"
    whole = pack[ending](data)
    path.write_bytes(whole[: len(whole) // 2])
    found = read(folder_store, path)
    assert len(found) > 1000
    assert reasons(found).count("broken") == 1
    assert reasons(found)[-1] == "broken"


def test_a_line_of_any_length_costs_no_more_memory_than_the_limit(
    folder_store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + b"a" * 5_000_000 + b'"}\n{"text": "next"}\n')
    found = read(folder_store, path, 1000)
    assert reasons(found) == ["too_large", ""]
    assert [i.value for i in found if isinstance(i, Refused)] == [5_000_013]


def test_a_file_that_changed_since_it_was_listed_is_an_error_naming_it(
    folder_store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(member(0))
    listed = InputFile(str(path), "warc", "path", path.stat().st_size, f"{crc32c(member(0)):08x}")
    assert len(list(read_pages(folder_store, listed, LIMIT))) == 1
    path.write_bytes(member(1))
    with pytest.raises(InputChanged, match=r"a\.warc\.gz"):
        list(read_pages(folder_store, listed, LIMIT))


ARABIC = "مرحبا بكم في هذا الموقع"


@pytest.mark.parametrize(
    ("body", "http", "used"),
    [
        (b"\xef\xbb\xbf" + ARABIC.encode(), "windows-1256", "utf-8"),
        (ARABIC.encode("windows-1256"), "windows-1256", "cp1256"),
        (b'<meta charset="windows-1256">' + ARABIC.encode("windows-1256"), "", "cp1256"),
        (b'<meta charset="windows-1251">' + ARABIC.encode("windows-1256"), "cp1256", "cp1256"),
        (b'<meta charset="utf-16">' + ARABIC.encode(), "", "utf-8"),
        (ARABIC.encode(), "", "utf-8"),
        (ARABIC.encode(), "no-such-charset", "utf-8"),
        (ARABIC.encode("utf-16"), "", "utf-16-le"),
    ],
)
def test_character_set_is_mark_then_header_then_meta_then_detector(
    body: bytes, http: str, used: str
) -> None:
    text, name = decode_text(body, http)
    assert name == used
    assert ARABIC in text


def test_a_few_bad_bytes_do_not_turn_utf8_into_nonsense() -> None:
    body = ARABIC.encode() * 50 + b"\xff" + ARABIC.encode() * 50
    text, name = decode_text(body, "utf-8")
    assert name == "utf-8"
    assert text.count("\ufffd") == 1
    assert text.count(ARABIC) == 100


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("shift_jis", "cp932", "①「㈱髙木商店」―ⅲ"),
        ("euc-kr", "cp949", "똠방각하 펲시콜라 뷁"),
        ("gb2312", "gb18030", "朱镕基 € 䶮 喆 𠮷"),
        ("big5", "big5hkscs", "嘅咁啲 香港"),
        ("tis-620", "cp874", "“ภาษาไทย” €"),
    ],
)
def test_labels_mean_what_the_web_means_by_them(label: str, codec: str, text: str) -> None:
    """Python's codecs of these names are narrower: they also lose the letter behind the sign."""
    for body, http in (
        (text.encode(codec), label),
        (f'<meta charset="{label}">'.encode() + text.encode(codec), ""),
    ):
        found, _ = decode_text(body, http)
        assert found.endswith(text)


def test_any_bytes_decode_to_something() -> None:
    for name in ("", "utf-8", "utf-16", "gb18030", "x-user-defined", "iso-2022-jp", "idna", "hex"):
        text, _ = decode_text(bytes(range(256)) * 3, name)
        io.StringIO(text)
