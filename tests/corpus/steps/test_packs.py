"""Limits come from five layers; each language has its own pack, found by any of its codes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from tests.texts import page

from eyas.corpus.steps.filters import filter_text
from eyas.corpus.steps.language import known_languages
from eyas.corpus.steps.packs import Ruleset, resolve
from eyas.corpus.steps.rules import RULES, SHAPING
from eyas.recipe import (
    C4,
    FILTERS,
    STEPS,
    Corpus,
    FilterTables,
    FineWeb,
    Gopher,
    UrlKeys,
    UsageError,
)

ARABIC = (
    "كان في المدينة القديمة تاجر حكيم يجلس كل مساء أمام دكانه، ويحكي للصغار عن الرحلات التي "
    "قام بها في شبابه إلى بلاد بعيدة. وكان يقول لهم إن الطريق الطويل يعلم الإنسان ما لا تعلمه "
    "الكتب، وإن من صبر على الحر والبرد عرف قيمة الظل والماء. وفي ليلة من ليالي الشتاء جاء "
    "إليه رجل غريب يحمل صندوقا صغيرا من خشب الأرز، وسأله هل يعرف صاحب هذا الصندوق؟ نظر التاجر "
    "إلى الصندوق ثم سكت طويلا، كأنه يستمع إلى صوت قادم من زمن آخر.",
    "اعلم أن العلم لا يعطيك بعضه حتى تعطيه كلك، وأن من طلب المعرفة وجب عليه أن يصبر على "
    "السؤال مع أهلها. وقد رأيت قوما جمعوا الكتب ولم يقرؤوا منها إلا العناوين، ورأيت آخرين لم "
    "يملكوا إلا كتابا واحدا، وكان كل حرف فيه محفوظا في صدورهم. فلا تنظر إلى ما في الخزائن، "
    "وانظر إلى ما في العقول؛ فإن الورق يحترق والحبر يمحى، أما الفهم فهو باق بين الناس ينتقل "
    "من جيل إلى جيل، كما ينتقل الضوء من شمعة إلى شمعة.",
    "مشينا على الشاطئ بعد صلاة العصر، والبحر هادئ كأنه مرآة من فضة. قالت جدتي إن السفن التي "
    "كانت ترسو هنا حملت التوابل والحرير من الهند، وإن جدي كان يعرف أسماء النجوم كلها، ويهتدي "
    "بها في ظلمة الليل. سألتها: ألم يكن يخاف من العواصف؟ فضحكت وقالت: كان يخاف من شيء واحد، "
    "هو أن يعود إلى البيت فلا يجد من ينتظره عند الباب. ثم سكتت، ونظرت إلى الأفق، وعرفت أنها "
    "لا تزال تنتظر.",
)


@pytest.mark.parametrize(
    ("code", "pack"),
    [
        *[(code, "arabic") for code in ("ar", "arb", "arb_Arab", "ar-EG", "arz", "apc_Arab")],
        *[(code, "hindi") for code in ("hi", "hin", "hin_Deva")],
        *[(code, "urdu") for code in ("ur", "urd", "urd_Arab")],
        *[(code, "bengali") for code in ("bn", "ben", "BN")],
        *[(code, "chinese") for code in ("zh", "zh-CN", "cmn_Hani", "zh_Hant_TW")],
        *[(code, "english") for code in ("en", "eng", "en-US", "eng_Latn")],
        *[(code, "general") for code in ("sw", "swh_Latn", "", "arb_Latn", "no such code")],
    ],
)
def test_every_code_of_a_language_finds_its_pack(code: str, pack: str) -> None:
    """Bare and three-letter codes must not fall to another language's splitting (fault 5)."""
    assert resolve(Corpus()).for_language(code).pack == pack


def test_no_code_is_in_two_packs_and_every_pack_is_of_a_language_that_is_detected() -> None:
    ruleset = resolve(Corpus())
    raw = ruleset.to_json()["packs"]
    codes = [code for pack in raw.values() for code in pack["codes"]]
    assert len(codes) == len(set(codes))
    assert {"en", "ar", "fr", "de", "es", "ru", "zh", "ja", "hi", "tr"} <= set(codes)
    for name, pack in raw.items():
        assert name == "general" or known_languages() & set(pack["codes"])


def test_the_published_values_are_complete_and_the_recipe_quotes_them() -> None:
    rules = resolve(Corpus(steps=STEPS)).for_language("en")
    for step in FILTERS:
        table = next(f for f in dataclasses.fields(FilterTables) if f.name == step).default
        for field in dataclasses.fields(table):
            value = rules.limits[step][field.name]
            shown = re.findall(r"\(([^()]*)\)$", field.metadata["doc"])[-1].split(";")[0]
            if isinstance(value, tuple):
                assert shown == (" ".join(value) or "none")
            elif isinstance(value, bool):
                assert shown == str(value).lower()
            else:
                assert float(shown.replace(",", "")) == value


@pytest.mark.parametrize("preset", ["refinedweb", "fineweb", "gopher", "c4", "none"])
def test_every_rule_has_its_limit_in_every_language(preset: str) -> None:
    ruleset = resolve(Corpus(preset=preset))
    for rules in ruleset.packs.values():
        assert rules.steps[: len(rules.steps)] == tuple(
            s for s in ruleset.steps if s in rules.steps
        )
        for step in rules.steps:
            keys = {rule.key for rule in RULES.get(step, ())} | SHAPING.get(step, frozenset())
            assert keys <= set(rules.limits.get(step, ()))
        assert set(rules.limits) <= {*rules.steps, "language", "words", "punctuation"}


def test_the_presets_stand_in_the_published_order() -> None:
    steps = {p: resolve(Corpus(preset=p)).steps for p in ("refinedweb", "fineweb", "gopher", "c4")}
    assert steps["refinedweb"] == ("url", "language", "repetition", "gopher", "lines")
    assert steps["fineweb"] == ("url", "language", "repetition", "gopher", "c4", "fineweb")
    assert steps["gopher"] == ("language", "gopher", "repetition")
    assert steps["c4"] == ("language", "c4")
    fineweb = resolve(Corpus(preset="fineweb"))
    assert fineweb.for_language("en").limits["fineweb"]["max_duplicate_line_characters"] == 0.01
    assert fineweb.for_language("en").limits["c4"]["terminal_punctuation"] is False
    assert fineweb.for_language("fr").limits["fineweb"]["max_duplicate_line_characters"] == 0.1
    assert "c4" not in fineweb.for_language("fr").steps


def test_each_layer_goes_before_those_below_it(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(
        'codes = ["ar"]\nlanguage_threshold = 0.5\n[gopher]\nmin_stop_words = 1\nmin_words = 10'
    )
    corpus = Corpus(gopher=Gopher(min_words=30, max_word_length=8), language_packs=str(tmp_path))
    ruleset = resolve(corpus)
    english, arabic = ruleset.for_language("en"), ruleset.for_language("ar")
    assert arabic.pack == "ours"
    assert english.limits["gopher"]["min_words"] == 30
    assert arabic.limits["gopher"]["min_words"] == 10
    assert arabic.limits["gopher"]["max_word_length"] == 8
    assert arabic.limits["gopher"]["min_letter_words"] == 0.787
    assert arabic.limits["gopher"]["min_stop_words"] == 1
    assert arabic.limits["language"]["threshold"] == 0.5
    assert english.limits["language"]["threshold"] == 0.65
    assert ruleset.for_language("arz").limits["gopher"]["min_words"] == 30
    assert ruleset.for_language("arz").pack == "arabic"


def test_a_pack_for_all_others_replaces_the_general_one(tmp_path: Path) -> None:
    (tmp_path / "rest.toml").write_text('codes = ["*"]\n[gopher]\nmin_words = 20')
    ruleset = resolve(Corpus(language_packs=str(tmp_path)))
    assert ruleset.for_language("sw").limits["gopher"]["min_words"] == 20
    assert ruleset.for_language("ar").limits["gopher"]["min_words"] == 50
    assert Ruleset.from_json(json.loads(json.dumps(ruleset.to_json()))) == ruleset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[gopher]\nmin_words = 1", "codes is missing"),
        ('codes = ["ar", "fa"]', "its codes have the packs arabic, persian"),
        ('codes = ["ar"]\n[gofer]', "gofer: no such key; did you mean gopher?"),
        ('codes = ["ar"]\n[gopher]\nmin_words = "few"', "gopher.min_words: "),
        ("codes = [", "not valid TOML"),
    ],
)
def test_a_pack_that_is_wrong_is_named_with_its_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "ours.toml").write_text(text)
    with pytest.raises(UsageError, match=r"ours\.toml") as caught:
        resolve(Corpus(language_packs=str(tmp_path)))
    assert expected in str(caught.value)


def test_a_pack_may_not_take_the_name_of_another_languages(tmp_path: Path) -> None:
    (tmp_path / "general.toml").write_text('codes = ["ar"]')
    with pytest.raises(UsageError, match="another language's pack has this name"):
        resolve(Corpus(language_packs=str(tmp_path)))


def test_a_folder_without_packs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no \.toml file"):
        resolve(Corpus(language_packs=str(tmp_path)))


@pytest.mark.parametrize("preset", ["refinedweb", "fineweb", "c4"])
def test_a_ruleset_survives_json(preset: str) -> None:
    ruleset = resolve(Corpus(preset=preset, languages=("ar", "zh")))
    again = Ruleset.from_json(json.loads(json.dumps(ruleset.to_json())))
    assert again == ruleset
    assert again.for_language("ar").limits == ruleset.for_language("ar").limits
    assert set(again.packs) == {"arabic", "chinese", "general"}


def test_a_limit_that_nothing_reads_changes_no_setting() -> None:
    """So that it recomputes nothing."""
    plain = resolve(Corpus()).to_json()
    assert (
        resolve(Corpus(c4=C4(min_sentences=9), fineweb=FineWeb(max_short_lines=0.1))).to_json()
        == plain
    )
    assert resolve(Corpus(gopher=Gopher(min_words=51))).to_json() != plain


def test_bad_words_are_read_here_and_not_by_workers(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("# ours\nZebra\napple\n\nzebra # twice\n", encoding="utf-8")
    corpus = Corpus(preset="c4", c4=C4(bad_words=str(words)))
    assert resolve(corpus).for_language("fr").limits["c4"]["bad_words"] == ("apple", "zebra")
    words.unlink()
    with pytest.raises(UsageError, match=re.escape(str(words))):
        resolve(corpus)


@pytest.mark.parametrize("preset", ["refinedweb", "gopher", "fineweb"])
def test_arabic_prose_passes_its_own_pack_and_fails_the_english_one(preset: str) -> None:
    ruleset = resolve(Corpus(preset=preset))
    english, arabic = ruleset.for_language("en"), ruleset.for_language("ar")
    for text in (*ARABIC, page(1, "ar"), page(2, "ar")):
        assert filter_text(text, arabic).failure is None
        failure = filter_text(text, english).failure
        assert failure is not None
        assert failure.rule.reason == "too_few_stop_words"


@pytest.mark.parametrize(
    "text",
    [
        "ذَهَبَ الوَلَدُ فِي الصَّبَاحِ مِنَ البَيْتِ",
        "ذهب الولد فـــي الصباح مـــن البيت",
        "ذهب الولد الى المدرسة او السوق",
    ],
)
def test_arabic_stop_words_are_found_with_vowel_signs_tatweel_and_bare_alef(text: str) -> None:
    done = filter_text(text, resolve(Corpus(preset="gopher")).for_language("ar"))
    assert done.values["gopher.stop_words"] == 2
    assert done.text == text


def test_arabic_lines_end_as_arabic_sentences_do() -> None:
    corpus = Corpus(preset="c4", c4=C4(min_sentences=1))
    arabic, english = (resolve(corpus).for_language(code) for code in ("ar", "en"))
    line = "هل رأيت السفينة التي جاءت أمس إلى الميناء؟"
    assert filter_text(line, arabic).text == line
    assert filter_text(line, english).text == ""


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("zh", "他在城里住了很多年，每天早上都去河边散步。"),
        ("ja", "彼は毎朝、川のほとりを散歩するのが好きだった。"),
        ("hi", "वह हर सुबह नदी के किनारे टहलने जाता था।"),
        ("ur", "وہ ہر صبح دریا کے کنارے سیر کو جاتا تھا۔"),
        ("fr", "« Il se promenait chaque matin au bord de la rivière. »"),
        ("th", "เขาเดินเล่นริมแม่น้ำทุกเช้าก่อนไปทำงาน"),
    ],
)
def test_a_sentence_of_a_language_is_a_line_of_c4_there(code: str, line: str) -> None:
    rules = resolve(Corpus(preset="c4", c4=C4(min_sentences=1))).for_language(code)
    filtered = filter_text(line, rules)
    assert filtered.failure is None
    assert filtered.text == line


def test_keys_of_a_step_that_does_not_run_are_told(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"gopher": Gopher(min_words=30), "url": UrlKeys(blocklist=("mine.txt",))}
    resolve(Corpus(preset="c4", **keys))  # type: ignore[arg-type]
    assert "gopher.min_words, url.blocklist set in [corpus] without effect" in caplog.text
    assert "the steps are language, c4" in caplog.text
    caplog.clear()
    resolve(Corpus(preset="refinedweb", **keys))  # type: ignore[arg-type]
    assert not caplog.text


def test_limits_that_keep_nothing_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"min_words = 200 and max_words = 100 .* keep no document"
    ):
        resolve(Corpus(gopher=Gopher(min_words=200, max_words=100)))
