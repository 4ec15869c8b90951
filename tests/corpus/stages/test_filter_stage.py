"""Texts to candidates, values and rejects: every document once, every value kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.texts import page

from eyas.corpus.documents import CANDIDATES, REJECTS, TEXTS, TableWriter
from eyas.corpus.stages.filter_stage import SCORE, run_shard, value_names
from eyas.corpus.steps.packs import Ruleset, resolve
from eyas.recipe import Recipe
from eyas.store import Store
from eyas.work import Shard, ShardResult, Stage

FEW = " ".join(page(5).split()[:40])


def ruleset_of(**corpus: Any) -> Ruleset:
    raw = {"name": "r", "store": "s", "corpus": corpus}
    return resolve(Recipe.build(raw).corpus)


def filtered(
    store: Store,
    texts: list[tuple[str, str, float]],
    languages: tuple[str, ...] = (),
    **corpus: Any,
) -> tuple[ShardResult, dict[str, list[dict[str, Any]]]]:
    """The stage on rows of (text, language, score), and what it wrote by folder."""
    with TableWriter(TEXTS) as writer:
        for n, (text, language, score) in enumerate(texts):
            writer.append(f"{n:032x}", f"http://x/{n}", text, language, score, "a.warc", n, "2024")
        (ref,) = writer.finish(store, "corpus/texts/a-00000.parquet")
    settings = {"languages": list(languages), "ruleset": ruleset_of(**corpus).to_json()}
    stage = Stage("corpus.filter", 1, "", settings)
    result = run_shard(store, stage, Shard("a", (ref,)))
    found: dict[str, list[dict[str, Any]]] = {}
    for o in result.objects:
        table = pq.read_table(pa.BufferReader(store.get(o.key)))
        found[o.key.split("/")[1]] = table.to_pylist()
    return result, found


def test_every_text_is_a_candidate_or_a_reject_with_its_text(folder_store: Store) -> None:
    texts = [
        (page(1), "en", 0.9),
        (FEW, "en", 0.9),
        (page(2), "fr", 0.9),
        (page(3), "en", 0.1),
    ]
    result, found = filtered(folder_store, texts, languages=("en",))
    (kept,) = found["candidates"]
    assert kept["id"] == f"{0:032x}"
    assert (kept["text"], kept["bytes"]) == (page(1), len(page(1)))
    assert kept["words"] > 200
    rejects = {r["id"][-1]: (r["stage"], r["reason"], r["text"]) for r in found["rejects"]}
    assert rejects == {
        "1": ("gopher", "too_few_words", FEW),
        "2": ("language", "other_language", page(2)),
        "3": ("language", "uncertain_language", page(3)),
    }
    assert {r["date"] for r in found["rejects"]} == {"2024"}
    assert result.counters["documents"] == 4
    assert result.facts["pages"] == 0, "pages are counted where they are read"


def test_every_value_is_kept_of_kept_and_dropped_documents(folder_store: Store) -> None:
    texts = [(page(1), "en", 0.9), ("few words", "en", 0.8), (page(2), "en", 0.25)]
    _, found = filtered(folder_store, texts, preset="fineweb")
    values = {row["id"][-1]: row for row in found["values"]}
    names = value_names(ruleset_of(preset="fineweb").steps)
    assert list(values["0"]) == ["id", "language", *names]
    for row in (values["0"], values["1"]):
        assert all(row[name] is not None for name in names)
    assert values["1"]["gopher.words"] == 2
    assert values["2"][SCORE] == 0.25
    assert all(values["2"][name] is None for name in names if name != SCORE)


def test_a_value_at_its_limit_is_kept(folder_store: Store) -> None:
    text = page(1)
    _, found = filtered(folder_store, [(text, "en", 0.9)])
    words = int(found["values"][0]["gopher.words"])
    for limit, folder in ((words, "candidates"), (words + 1, "rejects")):
        _, found = filtered(folder_store, [(text, "en", 0.9)], gopher={"min_words": limit})
        assert folder in found
    assert found["rejects"][0]["value"] == words
    assert found["rejects"][0]["detail"] == "english"


def test_the_candidate_is_what_the_steps_left_and_the_reject_what_came_in(
    folder_store: Store,
) -> None:
    text = page(1, sentences=80) + "\n3 likes"
    _, found = filtered(folder_store, [(text, "en", 0.9)])
    assert found["candidates"][0]["text"] == page(1, sentences=80)
    _, found = filtered(folder_store, [(text, "en", 0.9)], lines={"max_removed_words": 0})
    assert found["rejects"][0]["text"] == text
    assert found["rejects"][0]["reason"] == "too_many_removed_words"


def test_arabic_is_held_to_its_own_pack(folder_store: Store) -> None:
    texts = [(page(n, "ar"), "ar", 0.9) for n in range(4)]
    _, found = filtered(folder_store, texts)
    assert len(found["candidates"]) == 4
    _, found = filtered(folder_store, [(text, "en", score) for text, _, score in texts])
    assert len(found["rejects"]) == 4


def test_preset_none_decides_by_language_alone(folder_store: Store) -> None:
    _, found = filtered(folder_store, [("two words", "en", 0.9), ("x", "en", 0.2)], preset="none")
    assert [r["text"] for r in found["candidates"]] == ["two words"]
    assert set(found["values"][0]) == {"id", "language", SCORE}


def test_the_schemas_are_those_of_documents(folder_store: Store) -> None:
    result, _ = filtered(folder_store, [(page(1), "en", 0.9), ("x", "en", 0.9)])
    schemas = {"candidates": CANDIDATES, "rejects": REJECTS}
    for ref in result.objects:
        folder = ref.key.split("/")[1]
        if folder in schemas:
            file = pq.ParquetFile(pa.BufferReader(folder_store.get(ref.key)))
            assert file.schema_arrow.equals(schemas[folder])
