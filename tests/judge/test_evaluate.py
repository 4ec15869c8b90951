"""The evaluation: which text is judged, what the report says, and that it comes again the same."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judge.made import SHAPE, Uniform, commit_documents, random_model
from tests.tokens.made import documents, whole

from eyas.judge import (
    HeldOut,
    choose,
    evaluate,
    group_small,
    held_out,
    read_report,
    report_key,
    write_report,
)
from eyas.recipe import UsageError
from eyas.store import Corrupt, Store, open_store, read_manifest, unseal

GERMAN = [f"Der Falke Nummer {n} fliegt über den Fluss und sieht die Maus. " * 6 for n in range(12)]
ARABIC = [f"الصقر رقم {n} يطير فوق النهر ويرى الفأر من بعيد. " * 6 for n in range(12)]
CORPUS = [
    *(("de", "validation", text) for text in GERMAN),
    *(("ar", "validation", text) for text in ARABIC),
    *(("de", "train", f"nicht zu sehen {text}") for text in GERMAN),
    ("fr", "validation", "Un faucon."),
    ("el", "validation", "Ένα γεράκι."),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "run"))
    commit_documents(store, CORPUS)
    return store


def test_the_report_has_every_language_and_the_small_ones_together(store: Store) -> None:
    report = evaluate(Uniform(), store, 100_000)
    assert [line.language for line in report.languages] == ["ar", "de", "other"]
    by_name = {line.language: line for line in report.languages}
    assert (by_name["de"].documents, by_name["other"].documents) == (12, 2)
    assert by_name["de"].bytes == sum(len(t.encode()) for t in GERMAN)
    for key in ("documents", "bytes", "tokens", "bits"):
        summed = sum(getattr(line, key) for line in report.languages)
        assert getattr(report.total, key) == pytest.approx(summed)


def test_a_uniform_model_costs_log2_v_bits_a_byte(store: Store) -> None:
    report = evaluate(Uniform(), store, 100_000)
    for line in (*report.languages, report.total):
        assert line.bits_per_byte == pytest.approx(math.log2(SHAPE.vocab_size), rel=1e-6)
        assert line.standard_error == pytest.approx(0, abs=1e-5)


def test_xz_has_the_very_same_bytes(store: Store) -> None:
    manifest = read_manifest(store, "corpus")
    assert manifest is not None
    texts = {n: [d.text for d in found] for n, found in held_out(store, manifest, 900).items()}
    report = evaluate(Uniform(), store, 900)
    assert [line.language for line in report.languages] == ["ar", "de", "other"]
    for line in report.languages:
        if line.language != "other":
            data = "".join(texts[line.language]).encode()
            packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
            assert line.bytes == len(data)
            assert line.xz_bytes == len(packed)
            assert line.xz_bits_per_byte == 8 * len(packed) / len(data)


def test_the_report_is_the_same_again_and_however_the_corpus_is_cut(tmp_path: Path) -> None:
    model = random_model()
    reports = []
    for shards in (1, 1, 5):
        store = open_store(str(tmp_path / f"{len(reports)}"))
        commit_documents(store, CORPUS[:: 1 if shards == 1 else -1], shards)
        reports.append(evaluate(model, store, 1500))
    assert reports[0] == reports[1]
    assert reports[0].identity == reports[1].identity
    assert reports[0].languages == reports[2].languages


def test_no_more_than_max_bytes_a_language_and_no_half_character(store: Store) -> None:
    manifest = read_manifest(store, "corpus")
    assert manifest is not None
    for most in (1000, 1001, 1002, 1003):
        for language, found in held_out(store, manifest, most).items():
            size = sum(d.bytes for d in found)
            assert size <= most
            if language in ("ar", "de"):
                assert size > most - 4
            assert [d.id for d in found] == sorted(d.id for d in found)


def test_nothing_of_the_training_split_is_judged(store: Store) -> None:
    manifest = read_manifest(store, "corpus")
    assert manifest is not None
    texts = [d.text for found in held_out(store, manifest, 10**6).values() for d in found]
    assert len(texts) == 26
    assert not any("nicht zu sehen" in text for text in texts)


def test_languages_may_be_chosen_and_must_exist(store: Store) -> None:
    report = evaluate(Uniform(), store, 5000, languages=["ar"])
    assert [line.language for line in report.languages] == ["ar"]
    with pytest.raises(UsageError, match="no held-out document in xx; there are ar, de, el, fr"):
        evaluate(Uniform(), store, 5000, languages=["xx"])


def test_the_context_is_the_model_s_unless_said(store: Store) -> None:
    model = Uniform()
    assert evaluate(model, store, 2000).context == 64
    assert max(len(row) for row in model.asked) == 64
    assert evaluate(model, store, 2000, context=32).context == 32
    with pytest.raises(UsageError, match="longer than the model's 64"):
        evaluate(model, store, 2000, context=65)


def test_the_context_is_what_the_data_plan_trains_on(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    whole(store, [documents(200, words=40)])
    assert evaluate(Uniform(), store, 2000).context == 32


def test_a_report_is_kept_sealed_and_read_back(store: Store) -> None:
    report = evaluate(random_model(), store, 1500)
    key = write_report(store, report, step=40, attempt=2)
    assert key == "eval/000000000040-2.json" == report_key(40, 2)
    assert read_report(store, 40, 2) == report
    body = unseal(store, key, store.get(key))
    assert (body["step"], body["attempt"], body["identity"]) == (40, 2, report.identity)
    assert json.loads(json.dumps(report.to_dict()))["total"]["language"] == "total"
    store.put(key, store.get(key).replace(b'"tokens":', b'"tokenz":', 1))
    with pytest.raises(Corrupt):
        read_report(store, 40, 2)


def test_the_table_has_a_line_a_language(store: Store) -> None:
    lines = evaluate(random_model(), store, 1500).render().splitlines()
    assert [line.split()[0] for line in lines] == ["language", "ar", "de", "other", "total"]
    assert "±" in lines[1]


def test_a_store_without_corpus_or_held_out_text_says_what_to_do(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    with pytest.raises(UsageError, match="eyas curate"):
        evaluate(Uniform(), store, 1000)
    commit_documents(store, [("de", "train", "Falke")])
    with pytest.raises(UsageError, match=r"corpus\.validation_share"):
        evaluate(Uniform(), store, 1000)


@given(
    st.lists(st.tuples(st.text("abc", min_size=1), st.integers(0, 50)), unique_by=lambda p: p[0]),
    st.integers(0, 200),
)
def test_documents_are_taken_by_id_until_the_bytes_are_full(
    sizes: list[tuple[str, int]], most: int
) -> None:
    taken = choose(sizes, most)
    assert sum(taken.values()) == min(most, sum(size for _, size in sizes))
    full = [name for name, size in sorted(sizes) if size]
    assert list(taken) == full[: len(taken)]
    whole = dict(sizes)
    assert all(taken[name] == whole[name] for name in list(taken)[:-1])


def test_one_small_language_alone_keeps_its_name() -> None:
    def documents(**sizes: int) -> dict[str, list[HeldOut]]:
        return {name: [HeldOut("0", "x" * size)] for name, size in sizes.items()}

    assert list(group_small(documents(fr=10, de=5000))) == ["de", "fr"]
    assert list(group_small(documents(fr=10, el=10, de=5000))) == ["de", "other"]


def test_the_standard_error_is_that_of_documents_drawn_anew(store: Store) -> None:
    report: Any = evaluate(random_model(), store, 100_000)
    german = next(line for line in report.languages if line.language == "de")
    assert 0 < german.standard_error < german.bits_per_byte
