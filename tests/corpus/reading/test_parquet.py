"""Rows of Parquet come with their text, URL and date; damage costs a row group and is counted."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.reading.memory import megabytes_more
from tests.texts import page

from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.reading.read import Page, Refused, read_pages
from eyas.store import Store

LIMIT = 100_000


def read(
    store: Store, path: Path, limit: int = LIMIT, text_field: str = "text"
) -> list[Page | Refused]:
    file = InputFile(str(path), "parquet", "path", path.stat().st_size)
    return list(read_pages(store, file, limit, text_field))


def table(rows: int = 40) -> pa.Table:
    return pa.table(
        {
            "text": [page(n) for n in range(rows)],
            "url": [f"http://x/{n}" for n in range(rows)],
            "date": [f"2024-05-{1 + n % 28:02d}" for n in range(rows)],
            "score": [n / 7 for n in range(rows)],
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_every_row_is_a_page_at_its_number(
    folder_store: Store, path: Path, compression: str
) -> None:
    pq.write_table(table(), path, row_group_size=7, compression=compression)
    found = read(folder_store, path)
    assert [(p.offset, p.url) for p in found] == [(n, f"http://x/{n}") for n in range(40)]
    assert all(isinstance(p, Page) and p.text == page(p.offset) for p in found)
    assert isinstance(found[3], Page)
    assert found[3].date == "2024-05-04"


def test_columns_of_any_kind_that_holds_text_are_read(folder_store: Store, path: Path) -> None:
    when = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    kinds = {
        "text": pa.array([b"caf\xc3\xa9", None, b"bad \xff byte"], pa.binary()),
        "url": pa.array(["http://x", "http://y", "http://x"]).dictionary_encode(),
        "date": pa.array([when] * 3, pa.timestamp("us")),
    }
    pq.write_table(pa.table(kinds), path)
    found = read(folder_store, path)
    assert [p.url for p in found] == ["http://x", "http://y", "http://x"]
    assert isinstance(found[0], Page)
    assert (found[0].text, found[0].date[:19]) == ("café", "2024-05-01 12:00:00")
    assert isinstance(found[1], Refused)
    assert (found[1].reason, found[1].value) == ("broken", 1)
    assert isinstance(found[2], Page)
    assert found[2].text == "bad \ufffd byte"


def test_another_column_holds_the_text_and_html_is_html(folder_store: Store, path: Path) -> None:
    pq.write_table(pa.table({"content": ["words"], "html": [b"<p>h</p>"]}), path)
    (named,) = read(folder_store, path, text_field="content")
    (other,) = read(folder_store, path)
    assert isinstance(named, Page)
    assert isinstance(other, Page)
    assert (named.text, other.body, other.text) == ("words", b"<p>h</p>", "")


def test_a_file_without_such_a_column_is_counted_and_says_which_it_has(
    folder_store: Store, path: Path
) -> None:
    pq.write_table(pa.table({"content": ["words"], "n": [1]}), path)
    (found,) = read(folder_store, path)
    assert isinstance(found, Refused)
    assert (found.reason, found.detail) == ("broken", "no column 'text' or 'html' in content, n")
    pq.write_table(pa.table({"text": [[1, 2]]}), path)
    (found,) = read(folder_store, path)
    assert isinstance(found, Refused)
    assert found.reason == "broken"


def test_an_address_that_is_a_list_costs_no_row(folder_store: Store, path: Path) -> None:
    pq.write_table(pa.table({"text": ["words"], "url": [["a"]], "date": [{"y": 1}]}), path)
    (found,) = read(folder_store, path)
    assert isinstance(found, Page)
    assert (found.text, found.url, found.date) == ("words", "", "")


def test_a_larger_text_than_the_limit_is_refused(folder_store: Store, path: Path) -> None:
    pq.write_table(pa.table({"text": ["a" * 10, "é" * 6, "b" * 11]}), path)
    found = read(folder_store, path, 10)
    assert [getattr(p, "reason", "") for p in found] == ["", "too_large", "too_large"]
    assert [p.value for p in found if isinstance(p, Refused)] == [12, 11]


def test_a_damaged_row_group_costs_its_rows_and_no_other(folder_store: Store, path: Path) -> None:
    pq.write_table(table(), path, row_group_size=10, write_page_checksum=True, use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(data)
    found = read(folder_store, path)
    kept = [p.offset for p in found if isinstance(p, Page)]
    (lost,) = [p for p in found if isinstance(p, Refused)]
    assert kept == [*range(10), *range(20, 40)]
    assert (lost.offset, lost.value, lost.reason) == (10, 10, "broken")
    assert "row group 1" in lost.detail


@pytest.mark.parametrize("damage", ["footer", "cut", "empty", "other"])
def test_a_file_that_is_none_is_counted_once(folder_store: Store, path: Path, damage: str) -> None:
    pq.write_table(table(), path)
    data = path.read_bytes()
    path.write_bytes(
        {
            "footer": data[:-8] + b"\xff\xff\xff\x7fPAR1",
            "cut": data[: len(data) // 2],
            "empty": b"",
            "other": b"<html>" * 100,
        }[damage]
    )
    (found,) = read(folder_store, path)
    assert isinstance(found, Refused)
    assert (found.reason, found.offset) == ("broken", 0)


def test_an_empty_table_has_no_pages(folder_store: Store, path: Path) -> None:
    pq.write_table(table(0), path)
    assert read(folder_store, path) == []


def test_a_huge_value_costs_its_row_group_and_no_memory(folder_store: Store, path: Path) -> None:
    """Written elsewhere, because writing it takes the memory that reading must not."""
    code = (
        "import pyarrow as pa, pyarrow.parquet as pq, sys\n"
        "schema = pa.schema({'text': pa.large_string()})\n"
        "plain = {'use_dictionary': False, 'write_statistics': False}\n"
        "with pq.ParquetWriter(sys.argv[1], schema, **plain) as writer:\n"
        "    for text in ('a', 'b' * 140_000_000, 'c'):\n"
        "        writer.write_table(pa.table({'text': pa.array([text, 'x'], pa.large_string())}))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    found: list[Page | Refused] = []
    more = megabytes_more(lambda: found.extend(read(folder_store, path)))
    assert [(p.offset, getattr(p, "reason", "")) for p in found] == [
        *((0, ""), (1, ""), (2, "too_large"), (4, ""), (5, "")),
    ]
    assert more < 60
