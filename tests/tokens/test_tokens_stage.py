"""Promises of the token shards: format, order, resume, checksums."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tokens.made import BLOCK_BYTES, commit_corpus, documents, recipe

from eyas.recipe import DataSource, EyasError, Recipe, UsageError
from eyas.store import Manifest, ObjectRef, Store, crc32c, open_store, read_manifest, read_object
from eyas.tokens import (
    Tokenizer,
    load_tokenizer,
    needs_corpus,
    train_tokenizer,
    write_tokens,
)
from eyas.tokens.encode import run_shard
from eyas.tokens.token_arrays import cut_documents, end_documents, gather
from eyas.tokens.token_objects import (
    BLOCK_RECORD,
    by_shard,
    object_stem,
    token_dtype,
    token_objects,
)
from eyas.work import Shard, Stage


def _manifest(store: Store) -> Manifest:
    manifest = read_manifest(store, "tokens")
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("split", ["train", "validation"])
def test_each_document_stands_encoded_before_an_end_of_text(made: Store, split: str) -> None:
    manifest, tokenizer = _manifest(made), load_tokenizer(made)
    corpus = {d["id"]: d for source in range(3) for d in documents(90, source)}
    found = []
    for shard in token_objects(manifest, "corpus", split):
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
    for shard in token_objects(_manifest(made), "corpus", "train"):
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
    shards = token_objects(manifest, "corpus", "train")
    for shard in shards:
        table = pq.read_table(io.BytesIO(read_object(made_here, shard.documents)))
        numbers = [int(url.rpartition("/")[2]) for url in table.column("url").to_pylist()]
        assert numbers != sorted(numbers)
    many = [ObjectRef(f"tokens/0123456789ab-x-train-{n:05d}.tok", 1, "") for n in range(50)]
    stage = sys.modules["eyas.tokens.tokens_stage"]
    results = [stage.ShardResult((reference,)) for reference in many]
    ordered = stage._ordered(["x"], results, range(50))
    assert sorted(ordered, key=lambda o: o.key) == many != list(ordered)


def test_the_manifest_says_what_there_is(made_here: Store) -> None:
    manifest, tokenizer = _manifest(made_here), load_tokenizer(made_here)
    facts = manifest.facts
    for split in ("train", "validation"):
        shards = token_objects(manifest, "corpus", split)
        assert facts["tokens"][split] == sum(s.tokens.rows for s in shards)
        assert facts["documents"][split] == sum(s.documents.rows for s in shards)
        assert facts["tokens"][split] == sum(facts["languages"][split].values())
        (source,) = facts["sources"].values()
        corpus = [d for n in range(3) for d in documents(90, n) if d["split"] == split]
        for language in ("ar", "en"):
            known = [d for d in corpus if d["language"] == language]
            assert source[split]["languages"][language] == {
                "documents": len(known),
                "tokens": facts["languages"][split][language],
                "bytes": sum(d["bytes"] for d in known),
            }
        for kind in ("documents", "tokens", "bytes"):
            sums = sum(figures[kind] for figures in source[split]["languages"].values())
            assert source[split][kind] == sums
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
    assert manifest is not None
    assert manifest.facts["tokens"]["validation"] == 0
    assert len(token_objects(manifest, "corpus", "train")) == 1
    assert token_objects(manifest, "corpus", "validation") == ()


def test_without_a_tokenizer_the_sentence_says_what_to_run(folder_store: Store) -> None:
    commit_corpus(folder_store, [documents(3)])
    with pytest.raises(EyasError, match="eyas tokenize"):
        write_tokens(recipe(folder_store), folder_store, workers=1)


def _with_sources(store: Store, *sources: DataSource, from_: str = "") -> Recipe:
    made = recipe(store)
    data = dataclasses.replace(made.data, sources=sources, from_=from_)
    return dataclasses.replace(made, data=data)


def _urls(store: Store, manifest: Manifest, source: str, split: str) -> list[str]:
    tables = [
        pq.read_table(io.BytesIO(read_object(store, shard.documents)))
        for shard in token_objects(manifest, source, split)
    ]
    return sorted(url for table in tables for url in table.column("url").to_pylist())


def _corpus_urls(split: str, *languages: str) -> list[str]:
    corpus = [d for source in range(3) for d in documents(90, source)]
    found = (d for d in corpus if d["split"] == split and d["language"] in languages)
    return sorted(d["url"] for d in found)


def test_the_first_source_that_takes_a_language_gets_its_documents(made_here: Store) -> None:
    sources = [
        DataSource(name="arabic", languages=("ar", "fa")),
        DataSource(name="more-arabic", languages=("ar",)),
        DataSource(name="rest"),
        DataSource(name="never"),
    ]
    manifest = write_tokens(_with_sources(made_here, *sources), made_here, workers=1)
    assert manifest is not None
    for split in ("train", "validation"):
        assert _urls(made_here, manifest, "arabic", split) == _corpus_urls(split, "ar")
        assert _urls(made_here, manifest, "rest", split) == _corpus_urls(split, "en")
        assert not token_objects(manifest, "more-arabic", split)
    assert manifest.counters["left_out"] == 0
    assert manifest.facts["sources"]["never"]["train"]["tokens"] == 0
    assert (
        sum(manifest.facts["sources"][s.name]["train"]["tokens"] for s in sources)
        == manifest.facts["tokens"]["train"]
        == _manifest_before(made_here).facts["tokens"]["train"]
    )
    keys = [o.key.split("-", 1)[1] for o in manifest.objects]
    owners = [key.rsplit("-", 1)[0] for key in keys]
    grouped = [owner for i, owner in enumerate(owners) if i == 0 or owner != owners[i - 1]]
    assert grouped == ["arabic-train", "arabic-validation", "rest-train", "rest-validation"]


def _manifest_before(store: Store) -> Manifest:
    manifest = read_manifest(store, "tokens", 1)
    assert manifest is not None
    return manifest


def test_sources_whose_names_hold_each_other_are_kept_apart() -> None:
    names = ["a", "b-a", "a-train", "a-validation-00001", "a_1"]
    objects = tuple(
        ObjectRef(object_stem("0" * 64, name, split, 1, part) + ending, 1, "")
        for name in names
        for split in ("train", "validation")
        for part in (0, 2)
        for ending in (".tok", ".blocks", ".docs.parquet")
    )
    manifest = Manifest("tokens", "x", objects=objects)
    for name in names:
        for split in ("train", "validation"):
            assert [shard.tokens.key for shard in token_objects(manifest, name, split)] == [
                f"tokens/000000000000-{name}-{split}-00001{part}.tok" for part in ("", "-2")
            ]


def test_documents_that_no_source_takes_are_counted(made_here: Store) -> None:
    source = DataSource(name="a", languages=("ar",))
    manifest = write_tokens(_with_sources(made_here, source), made_here, workers=1)
    assert manifest is not None
    english = len(_corpus_urls("train", "en")) + len(_corpus_urls("validation", "en"))
    assert manifest.counters["left_out"] == english
    assert manifest.facts["languages"]["train"].keys() == {"ar"}


def test_weights_and_epochs_are_no_reason_to_encode_again(made_here: Store) -> None:
    first = write_tokens(_with_sources(made_here, DataSource(name="a")), made_here, workers=1)
    other = _with_sources(made_here, DataSource(name="a", weight=3.0, epochs=2.0))
    assert write_tokens(other, made_here, workers=1) == first
    renamed = _with_sources(made_here, DataSource(name="b"))
    assert write_tokens(renamed, made_here, workers=1) != first


def test_a_source_that_is_added_leaves_the_others_as_they_are(
    made_here: Store, tmp_path: Path, small_blocks: None
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    added = DataSource(name="web", from_=f"hf:{tmp_path / 'a.jsonl'}")
    ledger = {o.key: o.etag for o in made_here.list("work/tokens.encode/")}
    both = _with_sources(made_here, DataSource(name="corpus"), added)
    manifest = write_tokens(both, made_here, workers=1)
    assert manifest is not None
    assert set(_manifest_before(made_here).objects) < set(manifest.objects)
    now = {o.key: o.etag for o in made_here.list("work/tokens.encode/")}
    assert ledger.items() <= now.items()
    assert len(now) == len(ledger) + 1
    assert _urls(made_here, manifest, "corpus", "train") == _corpus_urls("train", "ar", "en")
    assert len(_urls(made_here, manifest, "web", "train")) == 2


def test_another_stores_tokens_are_not_encoded_here(folder_store: Store, made_folder: Path) -> None:
    other = DataSource(name="corpus", from_=str(made_folder))
    assert write_tokens(_with_sources(folder_store, other), folder_store, workers=1) is None
    whole = _with_sources(folder_store, from_=str(made_folder))
    assert write_tokens(whole, folder_store, workers=1) is None
    assert not needs_corpus(whole)
    assert needs_corpus(recipe(folder_store))
    assert list(folder_store.list()) == []


def test_another_stores_tokens_must_be_of_this_stores_tokenizer(
    folder_store: Store, made_folder: Path
) -> None:
    commit_corpus(folder_store, [documents(60, 9, words=40)])
    train_tokenizer(recipe(folder_store), folder_store)
    before = [o.key for o in folder_store.list()]
    for made in (
        _with_sources(folder_store, from_=str(made_folder)),
        _with_sources(
            folder_store,
            DataSource(name="own"),
            DataSource(name="corpus", from_=str(made_folder)),
        ),
    ):
        with pytest.raises(UsageError, match=f"set tokenizer.from to {made_folder}"):
            write_tokens(made, folder_store, workers=1)
    assert [o.key for o in folder_store.list()] == before


def test_a_large_shard_is_written_in_parts_and_text_order_does_not_matter(
    made_here: Store, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    """The same documents with the same ids, whatever a part holds."""
    monkeypatch.setattr(sys.modules["eyas.tokens.encode"], "_BATCH_BYTES", 2000)
    whole, tokenizer = _manifest(made_here), Tokenizer(load_tokenizer(made_here).json)
    reference = next(o for o in whole.inputs if o.key.endswith("-tokenizer.json"))
    corpus = read_manifest(made_here, "corpus")
    assert corpus is not None
    source = corpus.under("corpus/documents/")[0]
    settings = {"block_bytes": 512, "shard_bytes": 3000}
    params = {
        "identity": "f" * 64,
        "number": 7,
        "sources": [{"name": "corpus", "languages": []}],
    }
    result = run_shard(
        made_here, Stage("s", 1, "", settings), Shard("s", (source, reference), params)
    )
    parts = token_objects(
        Manifest("tokens", "f" * 64, objects=by_shard(result.objects)["corpus", "train"]),
        "corpus",
        "train",
    )
    assert len(parts) > 2
    assert [p.tokens.key.rpartition("/")[2] for p in parts[:2]] == [
        "ffffffffffff-corpus-train-00007.tok",
        "ffffffffffff-corpus-train-00007-1.tok",
    ]
    assert all(p.tokens.size <= 3000 + 4000 for p in parts)
    texts = {d["id"]: d["text"] for d in documents(90, 0)}
    seen = []
    for part in parts:
        tokens = np.frombuffer(read_object(made_here, part.tokens), "<u2")
        for row in pq.read_table(io.BytesIO(read_object(made_here, part.documents))).to_pylist():
            ids = tokens[row["start"] : row["end"]].tolist()
            assert ids == [*tokenizer.encode(texts[row["document"]]), 0]
            seen.append(row["document"])
    assert sorted(seen) == sorted(d["id"] for d in documents(90, 0) if d["split"] == "train")


@given(data=st.data())
def test_documents_are_cut_at_every_end_of_text_and_nowhere_else(data: st.DataObject) -> None:
    made = data.draw(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=8))
    offsets = np.cumsum([0, *map(len, made)])
    ids = np.array([i for document in made for i in document], np.int64)
    kept, lengths, of = cut_documents(ids, offsets, 0)
    tokens, ended = end_documents(kept, lengths, 0, np.dtype("<u2"))
    expected = [
        (number, list(run))
        for number, document in enumerate(made)
        for ends, run in itertools.groupby(document, lambda i: i == 0)
        if not ends
    ]
    assert of.tolist() == [number for number, _ in expected]
    assert tokens.tolist() == [i for _, run in expected for i in (*run, 0)]
    assert ended.tolist() == [len(run) + 1 for _, run in expected]
    chosen = np.array(data.draw(st.permutations(range(len(lengths)))), np.int64)
    starts = np.cumsum(ended) - ended
    assert gather(tokens, starts[chosen], ended[chosen]).tolist() == [
        i for row in chosen for i in (*expected[row][1], 0)
    ]


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
    assert again is not None
    assert again.objects == _manifest(undisturbed).objects
    assert done.items() <= {o.key: o.etag for o in killed.list("work/tokens.encode/")}.items()
    for reference in again.objects:
        assert read_object(killed, reference) == undisturbed.get(reference.key)
