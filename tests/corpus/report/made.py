"""A corpus of forty languages as its tallies tell it, without a page being read.

Deterministic. Arabic loses much to one rule, so that there is something to notice; Thai has the
values of an unspaced script; texts come in many scripts and from hostile pages.
"""

from __future__ import annotations

import random
from typing import Any

from eyas.corpus.report.cost import StageWork, cost_facts
from eyas.corpus.report.funnel import Tally
from eyas.corpus.report.report import report_facts
from eyas.corpus.steps.packs import Ruleset, resolve
from eyas.corpus.steps.rules import RULES
from eyas.recipe import Recipe
from eyas.store import ObjectRef
from eyas.work import Shard, ShardResult

__all__ = ["CLUSTERS", "LANGUAGES", "TEXTS", "cost", "facts", "recipe", "recipe_steps", "tally"]

LANGUAGES = (
    "en ar zh de fr es ru ja hi tr pt it nl pl uk fa ur ko he th vi id cs sv el ro hu da fi no bg "
    "hr sk lt sl et lv bn ta sw"
).split()
TEXTS = {
    "ar": "خرجت القافلة من المدينة عند الفجر، وسارت في الصحراء ثلاثة أيام حتى بلغت البئر القديمة. "
    "هناك جلس الشيخ يحكي للصغار كيف كان الناس يعرفون الطريق بالنجوم.",
    "he": "בוקר אחד יצאה הסירה מן הנמל הקטן, והרוח נשאה אותה אל האי שאיש לא גר בו מאז המלחמה.",
    "fa": "باران تمام شب بر بام خانه‌ها می‌بارید و صبح، کوچه پر از برگ‌های زرد بود.",
    "ur": "گاؤں کے بیچ میں ایک پرانا درخت تھا جس کے نیچے لوگ شام کو بیٹھا کرتے تھے۔",
    "zh": "清晨的市场里，卖鱼的人已经摆好了摊子。河上的雾还没有散，船一只一只地靠岸。",
    "ja": "その年の冬は早く来た。港の灯台は雪に覆われ、漁師たちは網を直しながら春を待った。",
    "ru": "Поезд стоял на маленькой станции дольше обычного, и пассажиры вышли на перрон.",
    "hi": "नदी के किनारे बसे उस गाँव में हर साल मेला लगता था, और दूर-दूर से लोग आते थे।",
    "th": "เช้าวันนั้นตลาดริมน้ำเต็มไปด้วยผู้คน เรือขายของลำเล็กจอดเรียงกันตามตลิ่ง",
    "ko": "산길을 따라 한참을 걷자 오래된 절이 나타났고, 종소리가 골짜기에 울려 퍼졌다.",
    "de": "Die Brücke über den Fluss wurde im Herbst gesperrt, weil das Hochwasser die Pfeiler "
    "beschädigt hatte; erst im Frühjahr begann man mit der Arbeit.",
    "en": "The ferry left before sunrise, with two lorries of apples and a brass band aboard. "
    "Nobody had told the captain about the band.\n\nBy noon the wind had turned, and the harbour "
    "master was counting boats.",
}
CLUSTERS: dict[str, Any] = {
    "clusters": 3120,
    "sizes": [[2, 2100], [3, 640], [4, 190], [7, 120], [26, 60], [90, 9], [290, 1]],
    "largest": [
        {"cluster": f"{n:032x}", "documents": size} for n, size in ((7, 290), (9, 90), (12, 90))
    ],
}
_CENTRES = {
    "words": (420, 0.9), "word_length": (4.8, 0.14), "stop_words": (9, 0.4),
    "letter_words": (0.9, 0.04), "sentences": (18, 0.8), "punctuated_lines": (0.6, 0.4),
}  # fmt: skip


def recipe(**corpus: Any) -> Recipe:
    return Recipe.build({"name": "forty-languages", "store": "./t", "corpus": corpus})


def tally(ruleset: Ruleset, pages: int = 20_000) -> Tally:
    """About this many pages through these rules."""
    draw = random.Random(1)
    made = Tally()
    for number in range(pages):
        made.pages += 1
        _page(made, ruleset, draw, f"{draw.getrandbits(128):032x}", number)
    return made


def _page(made: Tally, ruleset: Ruleset, draw: random.Random, name: str, number: int) -> None:
    language = LANGUAGES[min(int(draw.expovariate(0.16)), len(LANGUAGES) - 1)]
    row = {
        "id": name,
        "url": f"https://{language}.example.org/{'long-path-segment-' * (number % 5)}{number}",
        "language": language,
        "text": TEXTS.get(language, f"A page in {language}, of no great interest. ") * 2,
    }
    early = draw.random()
    for stage, reason, share in (("read", "truncated", 0.02), ("url", "blocked_domain", 0.05),
                                 ("extract", "no_text", 0.12)):  # fmt: skip
        if early < share:
            made.reject(stage, reason)
            made.sample(f"{stage}/{reason}", row | {"language": "", "text": "", "value": None})
            return
    if early < 0.2:
        made.reject("language", "uncertain_language", language)
        made.sample("language/uncertain_language", row | {"value": 0.4 + early})
        return
    _filtered(made, ruleset, draw, row)


def _filtered(made: Tally, ruleset: Ruleset, draw: random.Random, row: dict[str, Any]) -> None:
    rules = ruleset.for_language(row["language"])
    values, failed = {"language.score": 0.65 + 0.35 * draw.random()}, None
    for step in rules.steps:
        for rule in RULES.get(step, ()):
            value = f"{step}.{rule.measure}"
            values.setdefault(value, _value(rule.measure, row["language"], draw))
            limit = rules.limits[step][rule.key]
            if failed is None and not rule.keeps(values[value], limit):
                failed = (step, rule.reason, values[value])
    made.measured(values, rules.pack)
    if failed:
        step, reason, found = failed
        made.reject(step, reason, row["language"])
        made.sample(f"{step}/{reason}", row | {"value": found, "detail": rules.pack})
    elif draw.random() < 0.2:
        made.reject("duplicates", "duplicate", row["language"])
        made.sample("duplicates/duplicate", row | {"detail": f"{draw.getrandbits(128):032x}"})
    else:
        made.keep(row["language"], draw.randrange(800, 9000))
        made.sample("kept", row)


def _value(measure: str, language: str, draw: random.Random) -> float:
    centre, width = _CENTRES.get(measure, (0.015, 0.8))
    if measure in ("lorem_ipsum", "curly_brackets", "bad_words"):
        return float(draw.random() < 0.01)
    if measure == "word_length" and language in ("zh", "ja", "th"):
        centre = 1.0
    if measure == "word_length" and language == "de":
        centre = 5.9
    if measure == "stop_words" and language == "ar":
        centre = 1.4
    value = centre * draw.lognormvariate(0, width)
    if measure in ("words", "stop_words", "sentences"):
        return float(int(value))
    return min(1.0, value) if measure not in ("word_length", "newlines_per_word") else value


def facts(pages: int = 20_000, **corpus: Any) -> dict[str, Any]:
    """The report of such a corpus."""
    made = recipe(**corpus)
    ruleset = resolve(made.corpus)
    return report_facts(made, ruleset, tally(ruleset, pages), CLUSTERS)


def cost(price: float = 0.05) -> dict[str, Any]:
    """Two stages on two hosts."""
    spent = [{"seconds": 90.0, "cpu_seconds": 80.0, "host": f"node-{n % 2}"} for n in range(4)]
    extract = StageWork(
        "extract",
        [Shard(f"w{n}", (ObjectRef(f"w{n}.warc.gz", 90_000_000, "0" * 8),)) for n in range(4)],
        [ShardResult((), {"pages": 5000}, {}, s) for s in spent],
    )
    filtered = StageWork(
        "filter",
        [Shard(f"t{n}", (ObjectRef(f"t{n}.parquet", 9_000_000, "0" * 8, 4400),)) for n in range(4)],
        [ShardResult((), {}, {}, {"seconds": 5.0, "cpu_seconds": 4.5, "host": "node-0"})] * 4,
    )
    return cost_facts([extract, filtered], 20_000, price)


def recipe_steps() -> tuple[str, ...]:
    """The steps of the default recipe."""
    return resolve(recipe().corpus).steps
