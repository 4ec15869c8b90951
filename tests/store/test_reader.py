"""An object as a file."""

from __future__ import annotations

import gzip
import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eyas.store import Corrupt, NotFound, ObjectReader, Store, crc32c, put_object

SIZE = 10_000
DATA = random.Random(0).randbytes(SIZE)
STEPS = st.lists(
    st.tuples(st.integers(0, SIZE + 100), st.integers(-1, 3000), st.booleans()), max_size=12
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 4000))
def test_it_reads_as_a_file_does(folder_store: Store, steps: list, block: int) -> None:
    if folder_store.stat("k") is None:
        folder_store.put("k", DATA)
    ours = ObjectReader(folder_store, "k", block=block)
    plain = io.BytesIO(DATA)
    for position, length, seek in steps:
        if seek:
            assert ours.seek(position) == plain.seek(position)
        assert ours.read(length) == plain.read(length)
        assert ours.tell() == plain.tell()
    assert ours.seek(-10, io.SEEK_END) == SIZE - 10
    assert ours.readall() == DATA[-10:]


class _Counting:
    """A store that counts what is fetched."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.stat = store.stat
        self.ranges: list[tuple[int, int]] = []

    def read_into(self, key: str, start: int, buffer: memoryview) -> None:
        self.ranges.append((start, len(buffer)))
        self._store.read_into(key, start, buffer)


def test_every_block_is_fetched_once(folder_store: Store) -> None:
    folder_store.put("k", DATA)
    counting = _Counting(folder_store)
    with ObjectReader(counting, "k", block=3000) as reader:  # type: ignore[arg-type]
        while reader.read(100):
            pass
    assert counting.ranges == [(0, 3000), (3000, 3000), (6000, 3000), (9000, 1000)]


def test_a_read_larger_than_a_block_is_one_request(folder_store: Store) -> None:
    folder_store.put("k", DATA)
    counting = _Counting(folder_store)
    reader = ObjectReader(counting, "k", size=SIZE, block=1000)  # type: ignore[arg-type]
    assert reader.read(8000) == DATA[:8000]
    assert counting.ranges == [(0, 8000)]


def test_parquet_is_read_through_it(store: Store) -> None:
    table = pa.table({"n": list(range(50_000)), "text": [f"row {n}" for n in range(50_000)]})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=5000)
    store.put("t.parquet", buffer.getvalue())
    with ObjectReader(store, "t.parquet", block=100_000) as reader:
        file = pq.ParquetFile(reader)
        assert file.read() == table
        assert file.read_row_group(7, columns=["n"]) == table.select(["n"]).slice(35_000, 5000)


def test_a_crawl_file_is_read_through_it(store: Store) -> None:
    record = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{0}>\r\n"
        "WARC-Target-URI: http://example.org/{0}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        "Content-Length: 5\r\n\r\nhello\r\n\r\n"
    )
    packed = b"".join(gzip.compress(record.format(n).encode()) for n in range(300))
    ref = put_object(store, "x.warc.gz", packed)
    reader = ObjectReader(store, ref.key, ref.size, block=4096, crc32c=ref.crc32c)
    found = [r.headers["WARC-Target-URI"] for r in ArchiveIterator(io.BufferedReader(reader))]
    assert found == [f"http://example.org/{n}" for n in range(300)]


@pytest.mark.parametrize("at", [0, 5000, SIZE - 1])
@pytest.mark.parametrize("length", [10, 999, 20_000])
def test_a_flipped_byte_is_found_before_the_end_is_returned(
    folder_store: Store, at: int, length: int
) -> None:
    ref = put_object(folder_store, "k", DATA)
    damaged = DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]
    folder_store.put("k", damaged)
    reader = ObjectReader(folder_store, "k", ref.size, block=3000, crc32c=ref.crc32c)
    seen = b""
    with pytest.raises(Corrupt, match="k is damaged"):  # noqa: PT012
        while piece := reader.read(length):
            seen += piece
    assert len(seen) < SIZE


def test_a_whole_object_passes_its_check_with_seeks_between(folder_store: Store) -> None:
    ref = put_object(folder_store, "k", DATA)
    reader = ObjectReader(folder_store, "k", block=3000, crc32c=ref.crc32c)
    reader.seek(7000)
    assert reader.read(2000) == DATA[7000:9000]
    reader.seek(0)
    assert reader.read() == DATA
    assert f"{crc32c(DATA):08x}" == ref.crc32c


def test_what_is_not_there_is_an_error_at_once(folder_store: Store) -> None:
    with pytest.raises(NotFound, match="no object k"):
        ObjectReader(folder_store, "k")


def test_a_closed_reader_and_a_negative_seek_are_errors(folder_store: Store) -> None:
    folder_store.put("k", DATA)
    reader = ObjectReader(folder_store, "k")
    with pytest.raises(ValueError, match="cannot seek"):
        reader.seek(-1)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)
