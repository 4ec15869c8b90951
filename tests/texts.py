"""Made-up pages for tests that need many: English and Arabic that pass the quality rules.

Deterministic in the seed; no two pages share a sentence, so duplicates are made on purpose only.
"""

from __future__ import annotations

import html
import json
import random
from pathlib import Path

__all__ = ["page", "write_html", "write_jsonl"]

_ENGLISH = (
    "river mountain garden window letter market harbour winter summer teacher student "
    "kitchen bridge forest village island morning evening journey story picture music "
    "machine engine paper colour question answer number reason moment system method result "
    "problem history nature science village walked opened carried painted repaired measured "
    "gathered followed watched counted explained remembered discovered quiet bright narrow "
    "heavy gentle ancient modern distant simple careful"
).split()
_ARABIC = (
    "النهر الجبل الحديقة النافذة الرسالة السوق الميناء الشتاء الصيف المعلم الطالب المطبخ "
    "الجسر الغابة القرية الجزيرة الصباح المساء الرحلة القصة الصورة الآلة الورقة السؤال "
    "الجواب السبب النظام الطريقة النتيجة المشكلة التاريخ الطبيعة العلم كتب قرأ فتح حمل رسم "
    "أصلح قاس جمع تبع شاهد شرح تذكر هادئ قديم"
).split()


def page(seed: int, language: str = "en", sentences: int = 24) -> str:
    """Plain text of about 300 words."""
    words = random.Random(f"{language}-{seed}")
    pool = _ENGLISH if language == "en" else _ARABIC
    paragraphs = []
    for _ in range(max(1, sentences // 4)):
        paragraphs.append(" ".join(_sentence(words, pool, language) for _ in range(4)))
    return "\n\n".join(paragraphs)


def _sentence(words: random.Random, pool: list[str], language: str) -> str:
    chosen = words.sample(pool, 9)
    if language == "en":
        glue = words.sample(["the", "of", "and", "to", "that", "with", "have"], 4)
        pairs = [w for pair in zip(glue, chosen, strict=False) for w in pair] + chosen[4:]
        return " ".join(pairs).capitalize() + "."
    glue = words.sample(["في", "من", "على", "إلى", "أن", "هذا", "التي"], 4)
    pairs = [w for pair in zip(glue, chosen, strict=False) for w in pair] + chosen[4:]
    return " ".join(pairs) + "."


def write_jsonl(path: Path, count: int, language: str = "en", first: int = 0) -> Path:
    """`count` records with url and text."""
    lines = [
        json.dumps(
            {"url": f"https://{language}.test/{n}", "text": page(n, language)}, ensure_ascii=False
        )
        for n in range(first, first + count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_html(folder: Path, count: int, language: str = "en", first: int = 0) -> Path:
    """`count` small HTML files."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(first, first + count):
        body = "".join(f"<p>{html.escape(p)}</p>" for p in page(n, language).split("\n\n"))
        text = (
            f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{n}</title>'
            f"</head><body><nav>menu</nav><main><h1>Page {n}</h1>{body}</main></body></html>"
        )
        (folder / f"{language}-{n:04d}.html").write_text(text, encoding="utf-8")
    return folder
