"""Promises of `verify_tokens`: whatever is wrong with token shards is found and named."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tokens.made import BLOCK_BYTES

from eyas.recipe import EyasError
from eyas.store import Manifest, ObjectRef, Store, commit_manifest, put_object, read_manifest
from eyas.tokens import verify_tokens
from eyas.tokens.token_objects import BLOCK_RECORD, TokenObject, token_objects


def _manifest(store: Store) -> Manifest:
    manifest = read_manifest(store, "tokens")
    assert manifest is not None
    return manifest


def _shard(store: Store) -> TokenObject:
    """A training shard of several blocks."""
    return token_objects(_manifest(store), "corpus", "train")[1]


def _vouched(store: Store, key: str, data: bytes, rows: int) -> None:
    """Write other bytes of an object and a manifest that vouches for them."""
    new = put_object(store, key, data, rows)
    manifest = _manifest(store)
    objects = tuple(new if o.key == key else o for o in manifest.objects)
    commit_manifest(store, dataclasses.replace(manifest, objects=objects))


def _problems(store: Store) -> Sequence[str]:
    """All but that the plan is about an older version, which a rewritten manifest always is."""
    return [p for p in verify_tokens(store).problems if not p.startswith("data plan")]


def _rewrite_tokens(store: Store, change: Callable[[Any], Any], seal: bool = True) -> TokenObject:
    """Change the tokens of a shard; `seal` makes blocks and manifest vouch for the new ones."""
    shard = _shard(store)
    tokens = np.frombuffer(store.get(shard.tokens.key), "<u2").copy()
    data = change(tokens).tobytes()
    if not seal:
        store.put(shard.tokens.key, data)
        return shard
    from eyas.store import crc32c

    records = np.frombuffer(store.get(shard.blocks.key), BLOCK_RECORD).copy()
    for number in range(len(records)):
        block = data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
        records["crc32c"][number] = crc32c(block)
    _vouched(store, shard.tokens.key, data, len(data) // 2)
    _vouched(store, shard.blocks.key, records.tobytes(), len(records))
    return shard


def test_what_the_stage_wrote_is_whole(made: Store) -> None:
    read: list[int] = []
    report = verify_tokens(made, read.append)
    manifest = _manifest(made)
    assert report.problems == ()
    assert report.ok
    assert report.objects == len(manifest.objects)
    assert report.bytes == sum(read) == sum(o.size for o in manifest.objects)
    assert report.documents == sum(manifest.facts["documents"].values())
    assert report.tokens == sum(manifest.facts["tokens"].values())


def test_a_flipped_bit_is_named_with_its_block(made: Store) -> None:
    def flip(tokens: Any) -> Any:
        tokens[700] ^= 1
        return tokens

    shard = _rewrite_tokens(made, flip, seal=False)
    problems = _problems(made)
    assert any(p.startswith(f"{shard.tokens.key}: block 1 is damaged: CRC32C") for p in problems)
    assert any(p.startswith(f"{shard.tokens.key} is damaged: CRC32C") for p in problems)


@pytest.mark.parametrize("part", ["tokens", "blocks", "documents"])
def test_an_object_that_is_missing_or_short_is_named(made_here: Store, part: str) -> None:
    reference: ObjectRef = getattr(_shard(made_here), part)
    made_here.put(reference.key, made_here.get(reference.key)[:-1])
    (problem,) = _problems(made_here)
    assert reference.key in problem
    assert str(reference.size - 1) in problem
    made_here.delete([reference.key])
    (problem,) = _problems(made_here)
    assert problem.startswith(f"{reference.key} is missing")


def test_one_damaged_object_does_not_hide_another(made_here: Store) -> None:
    shard = _shard(made_here)
    made_here.put(shard.blocks.key, b"")
    made_here.put(shard.documents.key, b"")
    made_here.put(shard.tokens.key, b"")
    keys = [shard.tokens.key, shard.blocks.key, shard.documents.key]
    problems = _problems(made_here)
    assert all(any(key in problem for problem in problems) for key in keys)


@pytest.mark.parametrize("name", ["previous", "documents"])
def test_a_record_that_does_not_fit_the_tokens_is_named(made_here: Store, name: str) -> None:
    shard = _shard(made_here)
    records = np.frombuffer(made_here.get(shard.blocks.key), BLOCK_RECORD).copy()
    records[name][2] += 1
    _vouched(made_here, shard.blocks.key, records.tobytes(), len(records))
    (problem,) = _problems(made_here)
    assert problem.startswith(f"{shard.blocks.key}: block 2 has {name} {records[name][2]}, ")


def test_a_document_with_an_end_inside_or_without_one_is_named(made_here: Store) -> None:
    def inside(tokens: Any) -> Any:
        place = int(np.flatnonzero(tokens[:-1] & tokens[1:])[3])
        tokens[place] = 0
        return tokens

    shard = _rewrite_tokens(made_here, inside)
    assert any(
        p.startswith(f"{shard.tokens.key}: block 0 has an end of text inside a document at token")
        for p in _problems(made_here)
    )

    def without(tokens: Any) -> Any:
        tokens[-1] = 7
        return tokens

    _rewrite_tokens(made_here, without)
    last = shard.documents.rows - 1
    assert any(
        "has no end of text at token" in p and f"document {last} of {shard.documents.key}" in p
        for p in _problems(made_here)
    )


def test_a_table_that_does_not_cover_the_tokens_is_named(made_here: Store) -> None:
    shard = _shard(made_here)
    table = pq.read_table(io.BytesIO(made_here.get(shard.documents.key)))
    starts = table.column("start").to_numpy().copy()
    starts[4] += 1
    changed = table.set_column(4, table.schema.field("start"), pa.array(starts))
    sink = io.BytesIO()
    pq.write_table(changed, sink)
    _vouched(made_here, shard.documents.key, sink.getvalue(), len(starts))
    (problem,) = _problems(made_here)
    assert problem.startswith(f"{shard.documents.key}: document 4 is tokens {starts[4]} to")
    sink = io.BytesIO()
    pq.write_table(table.slice(0, table.num_rows - 1), sink)
    _vouched(made_here, shard.documents.key, sink.getvalue(), len(starts))
    problems = _problems(made_here)
    assert any(f"has {len(starts) - 1} documents, the manifest says" in p for p in problems)
    assert any("its documents end at token" in p for p in problems)


def test_an_id_beyond_the_vocabulary_is_named(made_here: Store) -> None:
    def high(tokens: Any) -> Any:
        tokens[tokens == tokens.max()] = 600
        return tokens

    shard = _rewrite_tokens(made_here, high)
    problems = _problems(made_here)
    assert any(p.startswith(f"{shard.tokens.key}: block ") and "has id 600" in p for p in problems)
    assert any(p.endswith("is the highest id, 600 is") for p in problems)


def test_counts_that_are_not_the_sums_are_named(made_here: Store) -> None:
    manifest = _manifest(made_here)
    facts = {k: v for k, v in manifest.facts.items()}
    facts["tokens"] = {"train": 1, "validation": facts["tokens"]["validation"]}
    facts["highest_id"] = 7
    stray = put_object(made_here, "tokens/stray", b"x")
    changed = dataclasses.replace(manifest, facts=facts, objects=(*manifest.objects, stray))
    commit_manifest(made_here, changed)
    assert _problems(made_here) == [
        "tokens/stray belongs to no source of the manifest",
        f"the manifest says 1 train tokens, there are {manifest.facts['tokens']['train']}",
        f"the manifest says 7 is the highest id, {manifest.facts['highest_id']} is",
    ]
    sources = json.loads(json.dumps(manifest.facts["sources"]))
    sources["corpus"]["validation"]["documents"] += 1
    facts = dict(manifest.facts) | {"sources": sources}
    commit_manifest(made_here, dataclasses.replace(manifest, facts=facts))
    (problem,) = _problems(made_here)
    count = manifest.facts["documents"]["validation"]
    expected = f'the manifest says {count + 1} validation documents of "corpus", there are {count}'
    assert problem == expected


def test_another_tokenizer_is_named(made_here: Store) -> None:
    manifest = _manifest(made_here)
    facts = dict(manifest.facts) | {"tokenizer": "0" * 64}
    objects = manifest.objects[:-3]
    commit_manifest(made_here, dataclasses.replace(manifest, facts=facts, objects=objects))
    problems = _problems(made_here)
    assert any(p.startswith(f"the manifest says tokenizer {'0' * 64}, the") for p in problems)
    (reference,) = (o for o in manifest.inputs if o.key.endswith("tokenizer.json"))
    made_here.delete([reference.key])
    assert any("the tokenizer of the tokens cannot be read" in p for p in _problems(made_here))


def test_a_plan_about_other_tokens_is_named(made_here: Store) -> None:
    assert verify_tokens(made_here).ok
    made_here.delete([o.key for o in made_here.list("tokens/manifest-")])
    with_plan = verify_tokens(made_here)
    assert not with_plan.ok
    assert with_plan.problems[0].startswith("data plan 1, step 0: ")
    made_here.delete([o.key for o in made_here.list("data/")])
    with pytest.raises(EyasError, match="holds no tokens"):
        verify_tokens(made_here)
