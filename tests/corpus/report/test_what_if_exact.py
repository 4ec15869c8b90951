"""What `what-if` answers is what a real run with that recipe keeps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.texts import page

from eyas.corpus import curate, inspect_documents, parse_change, what_if
from eyas.corpus.report.inspect import Query
from eyas.recipe import Recipe
from eyas.store import Manifest, Store, open_store
from eyas.work import Engine

pytestmark = pytest.mark.slow

PACK = """codes = ["ar"]
[gopher]
min_stop_words = 30
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of 20 to 400 words in two languages, some that repeat themselves, some in no language
    for sure."""
    path = tmp_path_factory.mktemp("pages") / "pages.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for n in range(160):
            language = "ar" if n % 3 == 0 else "en"
            text = page(n, language, sentences=1 + n % 24)
            if n % 5 == 0:
                text = " ".join(text.split()[: 15 + n % 60]) + "."
            if n % 7 == 0:
                text = "\n".join([text] * 3)
            if n % 11 == 0:
                text = f"### {text} ... ###\n- ...\n" + "# " * (n % 40)
            if n % 13 == 0:
                text = " ".join(page(n, "ar", 1).split()[:6] + page(n, "en", 1).split()[:9]) * 4
            row = {"url": f"https://{language}.test/{n}", "text": text}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(str(tmp_path_factory.mktemp("corpus") / "store"))


@pytest.fixture(scope="module")
def before(store: Store, pages: Path) -> Manifest:
    return made(store, pages)


def made(store: Store, pages: Path, **corpus: Any) -> Manifest:
    keys = {"sources": [str(pages)], "preset": "fineweb", **corpus}
    recipe = Recipe.build({"name": "t", "store": store.url, "corpus": keys})
    return curate(recipe, store, Engine(workers=1))


def passed(store: Store, manifest: Manifest) -> Counter[str]:
    """By language, the documents that the filters kept."""
    rows = inspect_documents(store, manifest, Query(), 1000)
    return Counter(r["language"] for r in rows if r["kept"] or r["stage"] == "duplicates")


@pytest.mark.parametrize(
    ("changes", "corpus"),
    [
        (
            ["gopher.min_words=20", "c4.min_sentences=1"],
            {"gopher": {"min_words": 20}, "c4": {"min_sentences": 1}},
        ),
        (
            ["repetition.max_duplicate_lines=1", "repetition.max_duplicate_line_characters=1",
             "gopher.max_hashes=.5", "gopher.max_ellipses=1"],
            {"repetition": {"max_duplicate_lines": 1.0, "max_duplicate_line_characters": 1.0},
             "gopher": {"max_hashes": 0.5, "max_ellipses": 1.0}},
        ),
        (
            ["fineweb.max_duplicate_line_characters=.5", "c4.min_sentences=12"],
            {"fineweb": {"max_duplicate_line_characters": 0.5}, "c4": {"min_sentences": 12}},
        ),
        (["language_threshold=.995"], {"language_threshold": 0.995}),
        (["ar.gopher.min_stop_words=30"], {"language_packs": "PACK"}),
    ],
)  # fmt: skip
def test_it_equals_a_real_run(
    store: Store, pages: Path, before: Manifest, tmp_path: Path,
    changes: list[str], corpus: dict[str, Any],
) -> None:  # fmt: skip
    (tmp_path / "arabic-of-ours.toml").write_text(PACK, encoding="utf-8")
    corpus = {k: str(tmp_path) if v == "PACK" else v for k, v in corpus.items()}
    answer = what_if(store, before, map(parse_change, changes))
    after = passed(store, made(store, pages, **corpus))
    said = {code: o.after for code, o in answer.languages.items() if o.after}
    assert said == dict(after)
    assert {c: o.before for c, o in answer.languages.items() if o.before} == passed(store, before)
    assert answer.total.gained or answer.total.lost
    assert answer.total.unmeasured == 0
