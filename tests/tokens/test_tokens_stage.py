"""Promises of the token shards: format, order, resume, checksums."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.tokens.made import BLOCK_BYTES, commit_corpus, documents, recipe

from eyas.recipe import EyasError
from eyas.store import Manifest, ObjectRef, Store, crc32c, open_store, read_manifest, read_object
from eyas.tokens import load_tokenizer, train_tokenizer, write_tokens
from eyas.tokens.token_objects import BLOCK_RECORD, token_dtype, token_objects


def _manifest(store: Store) -> Manifest:
    manifest = read_manifest(store, "tokens")
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("split", ["train", "validation"])
def test_each_document_stands_encoded_before_an_end_of_text(made: Store, split: str) -> None:
    manifest, tokenizer = _manifest(made), load_tokenizer(made)
    corpus = {d["id"]: d for source in range(3) for d in documents(90, source)}
    found = []
    for shard in token_objects(manifest, split):
        tokens = np.frombuffer(read_object(made, shard.tokens), "<u2")
        table = pq.read_table(io.BytesIO(read_object(made, shard.documents)))
        assert shard.tokens.rows == len(tokens) == table.column("end")[-1].as_py()
        for row in table.to_pylist():
            known = corpus[row["document"]]
            assert known["split"] == split
            assert (row["url"], row["language"]) == (known["url"], known["language"])
            ids = tokens[row["start"] : row["end"]].tolist()
            assert ids == [*tokenizer.encode(known["text"]), 0]
            found.append(row["document"])
    assert sorted(found) == sorted(d["id"] for d in corpus.values() if d["split"] == split)


def test_each_block_has_its_checksum_its_previous_token_and_its_documents(made: Store) -> None:
    several = 0
    for shard in token_objects(_manifest(made), "train"):
        data = read_object(made, shard.tokens)
        records = np.frombuffer(read_object(made, shard.blocks), BLOCK_RECORD)
        assert len(records) == -(-len(data) // BLOCK_BYTES) == shard.blocks.rows
        tokens = np.frombuffer(data, "<u2")
        for number, record in enumerate(records):
            start = number * BLOCK_BYTES
            assert record["crc32c"] == crc32c(data[start : start + BLOCK_BYTES])
            before = tokens[: start // 2]
            assert record["previous"] == (before[-1] if number else 0)
            assert record["documents"] == np.count_nonzero(before == 0)
        several += len(records) > 2
    assert several


def test_documents_and_shards_are_shuffled(made_here: Store) -> None:
    manifest = _manifest(made_here)
    shards = token_objects(manifest, "train")
    for shard in shards:
        table = pq.read_table(io.BytesIO(read_object(made_here, shard.documents)))
        numbers = [int(url.rpartition("/")[2]) for url in table.column("url").to_pylist()]
        assert numbers != sorted(numbers)
    many = [ObjectRef(f"x-train-{n:05d}.tok", 1, "") for n in range(50)]
    stage = sys.modules["eyas.tokens.tokens_stage"]
    results = [stage.ShardResult((reference,)) for reference in many]
    ordered = stage._ordered(results)
    assert sorted(ordered, key=lambda o: o.key) == many != list(ordered)


def test_the_manifest_says_what_there_is(made_here: Store) -> None:
    manifest, tokenizer = _manifest(made_here), load_tokenizer(made_here)
    facts = manifest.facts
    for split in ("train", "validation"):
        shards = token_objects(manifest, split)
        assert facts["tokens"][split] == sum(s.tokens.rows for s in shards)
        assert facts["documents"][split] == sum(s.documents.rows for s in shards)
        assert facts["tokens"][split] == sum(facts["languages"][split].values())
    assert facts["tokenizer"] == tokenizer.digest
    assert facts["dtype"] == "uint16"
    everything = [
        np.frombuffer(read_object(made_here, o), "<u2")
        for o in manifest.objects
        if o.key.endswith(".tok")
    ]
    assert facts["highest_id"] == max(int(tokens.max()) for tokens in everything)
    assert load_tokenizer(made_here, manifest).digest == tokenizer.digest


def test_ids_that_do_not_fit_into_two_bytes_take_four() -> None:
    assert token_dtype(65_536) == np.dtype("<u2")
    assert token_dtype(65_537) == np.dtype("<u4")


def test_a_finished_stage_does_nothing(made_here: Store, small_blocks: None) -> None:
    before = [(o.key, o.etag) for o in made_here.list()]
    again = write_tokens(recipe(made_here), made_here, workers=1)
    assert again == _manifest(made_here)
    assert [(o.key, o.etag) for o in made_here.list()] == before


def test_a_shard_without_held_out_documents_or_any_is_fine(folder_store: Store) -> None:
    train = [d for d in documents(60, 0, words=40) if d["split"] == "train"]
    commit_corpus(folder_store, [train, []])
    made = recipe(folder_store)
    train_tokenizer(made, folder_store)
    manifest = write_tokens(made, folder_store, workers=1)
    assert manifest.facts["tokens"]["validation"] == 0
    assert len(token_objects(manifest, "train")) == 1
    assert token_objects(manifest, "validation") == ()


def test_without_a_tokenizer_the_sentence_says_what_to_run(folder_store: Store) -> None:
    commit_corpus(folder_store, [documents(3)])
    with pytest.raises(EyasError, match="eyas tokenize"):
        write_tokens(recipe(folder_store), folder_store, workers=1)


_RUN = """
import sys
from eyas.store import open_store
from eyas.tokens import write_tokens
from tests.tokens.made import recipe
store = open_store(sys.argv[1])
write_tokens(recipe(store), store, workers=1)
"""


def test_killed_and_run_again_it_leaves_the_same_bytes(tmp_path: Path) -> None:
    corpus = [documents(150, source, words=250) for source in range(5)]
    stores = [open_store(str(tmp_path / name)) for name in ("undisturbed", "killed")]
    for store in stores:
        commit_corpus(store, corpus)
        train_tokenizer(recipe(store), store)
    undisturbed, killed = stores
    write_tokens(recipe(undisturbed), undisturbed, workers=1)
    path = ":".join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, killed.url],
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(list(killed.list("work/tokens.encode/"))) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert read_manifest(killed, "tokens") is None
    done = {o.key: o.etag for o in killed.list("work/tokens.encode/")}
    again = write_tokens(recipe(killed), killed, workers=1)
    assert again.objects == _manifest(undisturbed).objects
    assert done.items() <= {o.key: o.etag for o in killed.list("work/tokens.encode/")}.items()
    for reference in again.objects:
        assert read_object(killed, reference) == undisturbed.get(reference.key)
