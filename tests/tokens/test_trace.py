"""Promises of traces: from a step back to documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tokens.made import Watched, documents

from eyas.cli.main import main
from eyas.store import Store, open_store
from eyas.tokens import load_tokenizer, open_tokens


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("store_of", ["made_here", "mixed"])
def test_a_trace_names_the_documents_whose_text_is_in_the_batch(
    store_of: str, made_folder: Path, split: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(store_of)
    tokens, tokenizer = open_tokens(store, split=split), load_tokenizer(store)
    stores = {s.name: open_store(s.store) if s.store else store for s in _sources(tokens)}
    corpus = {d["id"]: d for source in range(3) for d in documents(90, source)}
    seen = set()
    for step in range(0, 40, 9) if split == "train" else range(tokens.steps):
        batch = tokens.batch(step)
        rebuilt: dict[int, list[int]] = {n: [] for n in batch.samples}
        for row in tokens.trace(step, text=True):
            known = corpus[row.document]
            assert row.start < row.end
            assert (row.url, row.language) == (known["url"], known["language"])
            if row.source in ("arabic", "rest"):
                assert (row.language == "ar") == (row.source == "arabic")
            ids = [*tokenizer.encode(known["text"]), 0][row.start : row.end]
            assert row.text == tokenizer.decode(i for i in ids if i)
            assert stores[row.source].stat(row.shard) is not None
            rebuilt[row.sample] += ids
            seen.add(row.source)
        for n, row_ids, mask in zip(batch.samples, batch.ids, batch.loss_mask, strict=False):
            assert rebuilt[n] == row_ids[1:][mask].tolist()
    assert seen == set(stores)


def _sources(tokens: object) -> tuple:  # type: ignore[type-arg]
    return tokens.plan.segments[0].sources  # type: ignore[attr-defined, no-any-return]


def test_the_trace_of_a_rank_is_its_part_and_reads_no_tokens(made_here: Store) -> None:
    watched = Watched(made_here)
    tokens = open_tokens(watched)
    whole = tokens.trace(5)
    parts = [tokens.trace(5, rank=rank, world=3) for rank in range(3)]
    assert whole == parts[0] + parts[1] + parts[2]
    assert {row.sample for row in parts[1]} == set(tokens.batch(5, 1, 3).samples)
    watched.reads.clear()
    open_tokens(watched).trace(6)
    assert not any(key.endswith(".tok") for key, _, _ in watched.reads)


def test_the_command_prints_sources_and_urls(
    mixed: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'name = "t"\nstore = "{mixed.url}"\n', encoding="utf-8")
    assert main(["trace", str(recipe), "--step", "3", "--rank", "1", "--world", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = open_tokens(mixed).trace(3, rank=1, world=2)
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert row.source in line
        assert line.endswith(row.url)
