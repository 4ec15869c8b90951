"""Promises of the list of input files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.corpus.curated import recipe
from tests.texts import write_jsonl

from eyas.corpus import input_files
from eyas.corpus.reading import inputs
from eyas.store import Store, verify


def test_files_that_did_not_change_are_not_read_again_to_be_listed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write_jsonl(tmp_path / f"{name}.jsonl", 3)
    asked = recipe(store, tmp_path)
    first = input_files(asked, store, None)
    read: list[str] = []
    checksum = inputs._checksum
    monkeypatch.setattr(
        inputs, "_checksum", lambda key, advance: read.append(key) or checksum(key, advance)
    )
    assert input_files(asked, store, None) == first
    assert not read
    write_jsonl(tmp_path / "b.jsonl", 3, first=5)
    second = input_files(asked, store, None)
    assert read
    assert second[0] == first[0]
    assert second[1].crc32c != first[1].crc32c
    assert verify(store).ok


def test_a_damaged_list_of_checksums_is_made_again(folder_store: Store, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", 3)
    asked = recipe(folder_store, tmp_path / "a.jsonl")
    first = input_files(asked, folder_store, None)
    (kept,) = folder_store.list("work/inputs/")
    folder_store.put(kept.key, os.urandom(kept.size))
    assert input_files(asked, folder_store, None) == first
    assert verify(folder_store).ok
