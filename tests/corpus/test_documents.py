"""The tables: the same rows are the same bytes, and what is read is verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eyas.corpus import documents
from eyas.corpus.documents import CANDIDATES, TableWriter, read_columns, read_tables
from eyas.store import Corrupt, ObjectRef, Store


def written(store: Store, count: int, key: str = "corpus/candidates/a.parquet") -> ObjectRef:
    with TableWriter(CANDIDATES) as table:
        for n in range(count):
            row = (f"{n:032x}", f"http://x/{n}", f"text {n} " * 50, "en", 0.5, "a.warc", n, "")
            table.append(*row, 100, 400)
        (ref,) = table.finish(store, key)
    return ref


def test_the_same_rows_are_the_same_bytes(folder_store: Store) -> None:
    refs = [written(folder_store, 5000, f"corpus/candidates/{n}.parquet") for n in range(2)]
    assert refs[0].crc32c == refs[1].crc32c
    assert refs[0].rows == 5000


def test_in_a_folder_an_object_is_named_by_its_content(folder_store: Store) -> None:
    first, again, other = (written(folder_store, n, "corpus/candidates/") for n in (5, 5, 6))
    assert first == again != other
    assert len({first.key, again.key, other.key}) == 2


def test_a_large_object_is_read_as_a_small_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = written(store, 9000)
    small = list(read_tables(store, ref))
    monkeypatch.setattr(documents, "_IN_MEMORY", 1000)
    assert list(read_tables(store, ref)) == small
    assert [t.num_rows for t in small] == [4096, 4096, 808]


def test_some_columns_are_read_without_the_texts(store: Store) -> None:
    ref = written(store, 9000)
    urls = [url for t in read_columns(store, ref, ["url", "id"]) for url in t["url"].to_pylist()]
    assert urls == [f"http://x/{n}" for n in range(9000)]


@pytest.mark.parametrize("reader", ["tables", "large", "columns"])
def test_a_flipped_bit_is_noticed(
    folder_store: Store, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    ref = written(folder_store, 500)
    data = bytearray(folder_store.get(ref.key))
    data[200] ^= 1  # in the pages of the ids, which every reader reads
    folder_store.put(ref.key, bytes(data))
    if reader == "large":
        monkeypatch.setattr(documents, "_IN_MEMORY", 10)
    read = read_columns if reader == "columns" else read_tables
    with pytest.raises(Corrupt, match=r"a\.parquet is damaged"):
        list(read(folder_store, ref, ["id", "url"]))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in Linux's /proc")
@pytest.mark.parametrize("reader", ["read_tables", "read_columns"])
def test_reading_leaves_no_thread_that_could_outlive_the_interpreter(
    folder_store: Store, reader: str
) -> None:
    ref = written(folder_store, 500)
    probe = f"""
import os
from eyas.corpus.documents import {reader}
from eyas.store import ObjectRef, open_store
store = open_store({folder_store.url!r})
before = set(os.listdir("/proc/self/task"))
assert sum(t.num_rows for t in {reader}(store, {ref!r}, ["id", "url"])) == 500
assert set(os.listdir("/proc/self/task")) <= before, "Arrow started threads"
"""
    subprocess.run([sys.executable, "-c", probe], check=True, timeout=120)
