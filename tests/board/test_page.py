"""The page: right figures, nothing missing silently, nothing from outside becomes a tag."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lxml import etree, html
from tests.board.realistic import LANGUAGES, finished_run, loss_at

from eyas.board import write_board
from eyas.recipe import EyasError
from eyas.store import Manifest, Store, commit_manifest, open_store, put_piece, seal


def page(stores: Store | list[Store], folder: Path) -> Any:
    several = stores if isinstance(stores, list) else [stores]
    path = write_board(several, folder / "board.html")
    return html.fromstring(path.read_bytes().decode())


def section(tree: Any, title: str) -> Any:
    (found,) = [s for s in tree.iter("section") if s.findtext("h2") == title]
    return found


def words(element: Any) -> str:
    return " ".join(element.text_content().split())


def rows(element: Any) -> list[list[str]]:
    return [[words(cell) for cell in row.iter("td")] for row in element.iter("tr")][1:]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("board")
    return page(finished_run(folder / "run"), folder)


def test_the_head_names_run_store_and_recipe(tree: Any) -> None:
    assert words(tree.find(".//h1")) == "demo"
    facts = words(tree.find_class("facts")[0])
    assert re.search(r"/run ?recipe [0-9a-f]{12} ?code 0\.1\.0$", facts)


def test_the_key_figures_are_those_of_the_run(tree: Any) -> None:
    figures = [words(f) for f in tree.find_class("figure")]
    assert f"Loss{loss_at(1):.2f} → {loss_at(1200):.2f}" in figures
    assert "Tokens seen4.92M" in figures
    assert "Bits a byte2.05 xz 2.24" in figures
    assert "Pages to documents1,024 → 454" in figures


def test_the_loss_says_how_far_and_what_was_done_again(tree: Any) -> None:
    lead = words(section(tree, "Loss").find_class("lead")[0])
    assert lead == (
        f"From {loss_at(1):.3f} to {loss_at(1200):.3f} over 1,200 steps in 2 attempts. "
        "50 steps were lost and done again."
    )


def test_the_loss_curve_is_drawn_where_its_axes_say(tree: Any) -> None:
    chart = section(tree, "Loss")
    labels = {t.text: t for t in chart.iter("text")}
    assert {"step", "loss, nats a token"} <= set(labels)
    raw = [p for p in chart.iter("path") if p.get("class") == "raw c0"]
    x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", raw[0].get("d")).groups())
    top, foot = (float(labels[n].get("y")) for n in ("10", "2"))
    assert y == pytest.approx(foot + (top - foot) * (loss_at(1) - 2) / 8, abs=0.1)
    last = float(labels["1,200"].get("x"))
    first = 64.0
    assert x == pytest.approx(first, abs=0.1)
    assert float(labels["600"].get("x")) == pytest.approx(
        first + (last - first) * 599 / 1199, abs=0.1
    )


def test_attempts_have_their_own_colours_and_a_legend(tree: Any) -> None:
    chart = section(tree, "Loss")
    assert {p.get("class") for p in chart.iter("path")} >= {"strong c0", "strong c1", "pale c0"}
    legend = words(chart.find_class("legend")[0])
    assert legend == "attempt 1attempt 2lost and done again"


def test_the_judgement_stands_beside_xz(tree: Any) -> None:
    judged = section(tree, "Judgement")
    table = rows(judged)
    assert table[0] == ["ar", "50,120", "1.750 ±0.031", "1.710", "+2%", ""]
    assert table[-1] == ["total", "234,860", "2.050 ±0.031", "2.240", "−8%", ""]
    assert words(judged.find_class("lead")[0]).startswith(
        "2.050 bits a byte of held-out text at step 1,200, 8.5 % below xz."
    )


def test_the_funnel_gives_pages_in_and_out_with_reasons(tree: Any) -> None:
    table = rows(section(tree, "Corpus"))
    assert [r[1:4] for r in table] == [
        ["1,024", "1,019", "99.5 %"],
        ["1,019", "1,007", "98.8 %"],
        ["1,007", "999", "99.2 %"],
        ["999", "995", "99.6 %"],
        ["995", "801", "80.5 %"],
        ["801", "454", "56.7 %"],
    ]
    assert table[4][0].startswith("quality96 too few words 41 symbol ratio 30 no stop words")
    assert "431 documents to train on 23 held out" in words(section(tree, "Corpus"))
    bars = section(tree, "Corpus").find_class("bar")
    widths = [[i.get("style") for i in bar.iter("i")] for bar in bars]
    assert widths[-1] == [f"width:{454 / 1024:.2%}", f"width:{347 / 1024:.2%}"]


def test_languages_are_followed_through_the_stages(tree: Any) -> None:
    found = section(tree, "Languages")
    heads = [words(h) for h in found.iter("th")]
    assert heads[1:5] == ["after language", "after repetition", "after quality", "documents"]
    table = rows(found)
    assert {r[0] for r in table} == set(LANGUAGES)
    assert table[1] == ["ar", "104", "104", "101", "58", "1.05 MiB", ""]


def test_tokens_give_the_tokenizer_s_figures(tree: Any) -> None:
    tokens = section(tree, "Tokens")
    pairs = dict(
        zip(
            [words(d) for d in tokens.iter("dt")],
            [words(d) for d in tokens.iter("dd")],
            strict=True,
        )
    )
    assert pairs["bytes per token"] == "3.613"
    assert pairs["unused items"] == "37"
    assert pairs["tokens, train"] == "1,690,112"
    assert ["ar", "3.60", "1.50", "1.05 MiB", "275,000"] in rows(tokens)


def test_checkpoints_and_stages_are_listed(tree: Any) -> None:
    commits = section(tree, "Checkpoints")
    assert words(commits.find_class("lead")[0]) == "12 commits, the last at step 1,200."
    assert [words(h) for h in commits.iter("th")][1:3] == ["step", "attempt"]
    assert rows(commits)[0][1:3] == ["1,200", "2"]
    stages = section(tree, "Plan and time")
    assert ["tokens a second", "12.5K", "11.8K", "0.94"] in rows(stages)
    assert any(r[:2] == ["train", "6 min 01 s"] for r in rows(stages))


def test_a_bare_list_of_stages_is_enough(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    store.put("run/summary.json", b'[{"stage": "train", "seconds": 2, "line": "loss fell"}]')
    assert rows(section(page(store, tmp_path), "Plan and time")) == [
        ["train", "2.0 s", "loss fell"]
    ]


def test_an_empty_store_says_what_is_missing(tmp_path: Path) -> None:
    tree = page(open_store(str(tmp_path / "run")), tmp_path)
    said = [words(p) for p in tree.find_class("missing")]
    assert len(said) == 7
    assert "No training metrics in this store yet." in said
    assert "No corpus is committed in this store." in said
    assert not tree.find_class("problem")


def test_damage_is_named_and_harms_only_its_own_part(tmp_path: Path) -> None:
    store = finished_run(tmp_path / "run")
    store.put("corpus/manifest-000001.json", b"rubbish")
    store.put("eval/000000000009-1.json", b"rubbish")
    store.put("run/summary.json", b"{")
    store.put("recipe.toml", b"name = ")
    store.put("metrics/000002/000000009999.jsonl", b'{"step": 1\n')
    tree = page(store, tmp_path)
    problems = " ".join(words(p) for p in tree.find_class("problem"))
    for name in (
        "corpus",
        "eval/000000000009-1.json",
        "run/summary.json",
        "recipe.toml",
        "metrics",
    ):
        assert name in problems
    assert rows(section(tree, "Judgement"))[-1][0] == "total"
    assert "1,200 steps" in words(section(tree, "Loss"))


def test_a_form_that_is_not_known_is_said_in_its_place(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    facts = {"funnel": [{"stage": "read", "in": 1, "out": 1}], "languages": {"en": [1]}}
    commit_manifest(store, Manifest("corpus", "aa", facts=facts))
    store.put(
        "eval/000000000001-1.json", seal({"languages": [], "total": {}, "step": 1, "attempt": 1})
    )
    tree = page(store, tmp_path)
    for title in ("Languages", "Judgement", "Judged"):
        found = [s for s in tree.iter("section") if s.findtext("h2") == title]
        if found:
            assert "not in a form that this version knows" in words(found[0])
    assert rows(section(tree, "Corpus"))[0][1:3] == ["1", "1"]


EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>&\x01\u202e'


def test_nothing_from_outside_becomes_a_tag(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    store.put("recipe.toml", f"name = {json.dumps(EVIL)}\nstore = 'x'".encode())
    funnel = [{"stage": EVIL, "in": 2, "out": 1, "reasons": {EVIL: 1}}]
    facts = {"funnel": funnel, "languages": {EVIL: {"documents": 1, "bytes": 9}}}
    commit_manifest(store, Manifest("corpus", "aa", code=EVIL, facts=facts))
    commit_manifest(store, Manifest("tokenizer", "bb", facts={"kind": EVIL, EVIL: 3}))
    line = {"language": EVIL, "bytes": 1, "bits_per_byte": 1.0, "xz_bits_per_byte": 2.0}
    body = {"languages": [line], "total": line, "step": 1, "attempt": 1}
    store.put("eval/000000000001-1.json", seal(body))
    stages = [{"stage": EVIL, "seconds": 1, "line": EVIL}]
    store.put("run/summary.json", json.dumps(stages).encode())
    tree = page(store, tmp_path)
    assert not list(tree.iter("script", "img"))
    assert not [e for e in tree.iter() for name in e.attrib if name.startswith("on")]
    shown = EVIL.replace("\x01", "\ufffd")
    assert shown in words(section(tree, "Corpus"))
    assert shown in words(section(tree, "Judgement"))


def test_words_from_outside_are_isolated_in_direction(tmp_path: Path) -> None:
    tree = page(finished_run(tmp_path / "run", "صقر"), tmp_path)
    assert tree.find(".//h1/bdi").text == "صقر"
    assert all(
        c.find("bdi") is not None
        for c in section(tree, "Languages").iter("td")
        if c.text_content() in LANGUAGES
    )


def test_the_page_stands_alone(tmp_path: Path) -> None:
    path = write_board([finished_run(tmp_path / "run")], tmp_path / "deep" / "board.html")
    written = path.read_text()
    assert written.startswith("<!doctype html>")
    assert not re.search(r"https?://|@import|url\(|<script", written)
    tree = html.fromstring(written)
    assert [e.get("href") for e in tree.iter("link")] == ["data:,"]
    policy = tree.find(".//meta[@http-equiv]").get("content")
    assert policy.startswith("default-src 'none'")
    body = written.removeprefix("<!doctype html>")
    closed = re.sub(r"<(meta|link)([^>]*)>", r"<\1\2/>", body)
    etree.fromstring(closed)  # well-formed to the last tag


def test_several_stores_stand_side_by_side(tmp_path: Path) -> None:
    one, two = finished_run(tmp_path / "one", "one"), open_store(str(tmp_path / "two"))
    put_piece(
        two, "metrics/000001", 1, [{"step": 1, "loss": 5.0}, {"step": 2, "loss": float("nan")}]
    )
    tree = page([one, two], tmp_path)
    table = rows(section(tree, "Runs"))
    assert table[0] == ["one", "1,200", "4,915,200", f"{loss_at(1200):.3f}", "2.050", "12"]
    assert table[1][1:] == ["1", "—", "5.000", "—", "0"]
    assert "1 step had no finite loss." in words(tree)


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"))
    for first in range(0, 20_000, 10_000):
        records = [{"step": s, "loss": 5.0 + (s % 7) / 10} for s in range(first, first + 10_000)]
        put_piece(store, "metrics/000001", first, [*records])
    path = write_board([store], tmp_path / "board.html")
    assert path.stat().st_size < 200_000


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EyasError, match="cannot write the page"):
        write_board([open_store(str(tmp_path))], tmp_path / "file" / "board.html")
