"""What only a folder has to promise: that it answers as a bucket does."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eyas.store import Store, StoreError, open_store


def _everything(store: Store) -> list[str]:
    root = Path(store.url)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_a_folder_is_made_with_the_first_put(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a" / "b"))
    assert list(store.list()) == []
    assert store.stat("k") is None
    assert not (tmp_path / "a").exists()
    store.put("c/k", b"")
    assert (tmp_path / "a" / "b" / "c" / "k").is_file()


def test_a_name_is_never_both_object_and_folder(folder_store: Store) -> None:
    folder_store.put("a/b", b"1")
    folder_store.put("c", b"2")
    for key in ("a", "c/d", "c/d/e"):
        for put in (folder_store.put, folder_store.put_if_absent):
            with pytest.raises(StoreError, match=f"cannot put {key}: one name would be both"):
                put(key, b"x")
    assert _everything(folder_store) == ["a", "a/b", "c"]


def test_a_folder_goes_with_its_last_object(folder_store: Store) -> None:
    folder_store.put("a/b/c", b"")
    folder_store.put("a/d", b"")
    folder_store.delete(["a/b/c"])
    assert _everything(folder_store) == ["a", "a/d"]
    folder_store.delete(["a/d"])
    assert _everything(folder_store) == []
    folder_store.put("a", b"now an object")
    assert folder_store.get("a") == b"now an object"


def test_puts_and_deletes_in_one_folder_do_not_disturb_each_other(folder_store: Store) -> None:
    start = threading.Barrier(8)

    def work(worker: int) -> None:
        start.wait()
        for turn in range(100):
            key = f"shared/deep/{worker}"
            folder_store.put(key, b"%d" % turn)
            assert folder_store.get(key) == b"%d" % turn
            folder_store.delete([key])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert _everything(folder_store) == []


def test_leftovers_of_a_crash_are_seen_by_no_reader(folder_store: Store) -> None:
    folder_store.put("a/b", b"")
    (Path(folder_store.url) / "a" / ".tmp-0123").write_bytes(b"half")
    assert [o.key for o in folder_store.list()] == ["a/b"]
    assert [o.key for o in folder_store.list("a/")] == ["a/b"]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(str(tmp_path / "file"))
    with pytest.raises(StoreError, match="cannot put k"):
        store.put("k", b"")


def test_an_error_of_the_disk_is_a_sentence(folder_store: Store) -> None:
    folder_store.put("k", b"")
    loop = Path(folder_store.url) / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StoreError, match=f"cannot get loop: {os.strerror(40)}"):
        folder_store.get("loop")


@pytest.mark.parametrize("url", ["http://x/y", "gs://bucket/x", "file:///tmp/x"])
def test_an_unknown_kind_of_store_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="s3://bucket/prefix or a folder"):
        open_store(url)
