"""Do our word-level filters decide as datatrove 0.10 does?

    .bench-datatrove/bin/python bench/agreement.py record     # the fixture of the tests
    .venv/bin/python bench/agreement.py texts FILE… OUT       # texts of WARC, HTML, JSONL with the
                                                              # limits of their language's pack
    .bench-datatrove/bin/python bench/agreement.py judge OUT VERDICTS
    .venv/bin/python bench/agreement.py compare OUT VERDICTS  # shares that agree, every difference

`record` takes the texts of agreement_texts.py, which stand around every threshold, and writes for
each: datatrove's words as lengths in order, the text that its C4 filter leaves with the words of
each line, and for every rule alone, at several limits, whether it keeps. The test holds our
decisions on datatrove's words against these. `compare` is about real pages and our own words: each
filter alone and FineWeb's chain, with the limits of the page's language on both sides.
datatrove stands in an environment of its own (see bench/requirements.txt).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agreement_texts import made_texts

FIXTURE = Path(__file__).parent.parent / "tests/corpus/steps/data/agreement.jsonl.gz"
GRID = (0.5, 0.8, 1.0, 1.25, 2.0)
# spaCy's blank tokenizers; the others of datatrove need packages or models of their own.
LANGUAGES = {
    **{"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn", "es": "spa_Latn", "ru": "rus_Cyrl"},
    **{"ar": "arb_Arab", "tr": "tur_Latn", "it": "ita_Latn", "pt": "por_Latn", "nl": "nld_Latn"},
    **{"pl": "pol_Latn", "uk": "ukr_Cyrl", "fa": "fas_Arab", "he": "heb_Hebr"},
    **{"id": "ind_Latn", "sv": "swe_Latn", "da": "dan_Latn", "cs": "ces_Latn", "el": "ell_Grek"},
}

# ---------------------------------------------------------------------- datatrove

OFF: dict[str, dict[str, Any]] = {
    "repetition": {
        **{"dup_line_frac": None, "dup_para_frac": None},
        **{"dup_line_char_frac": None, "dup_para_char_frac": None},
        **{"top_n_grams": (), "dup_n_grams": ()},
    },
    "gopher": {
        **{"min_doc_words": None, "max_doc_words": None, "min_avg_word_length": None},
        **{"max_avg_word_length": None, "max_symbol_word_ratio": None, "min_stop_words": None},
        **{"max_bullet_lines_ratio": None, "max_ellipsis_lines_ratio": None},
        "max_non_alpha_words_ratio": None,
    },
    "fineweb": {
        **{"line_punct_thr": 0.0, "short_line_thr": 9.0, "char_duplicates_ratio": 9.0},
        "new_line_ratio": 1e9,
    },
}
# Our key: datatrove's argument. `max_hashes` and `max_ellipses` are one argument there, and
# `max_words` is 100 so that texts of ours reach it.
ARGUMENTS = {
    "repetition": {
        **{"max_duplicate_lines": "dup_line_frac", "max_duplicate_paragraphs": "dup_para_frac"},
        "max_duplicate_line_characters": "dup_line_char_frac",
        "max_duplicate_paragraph_characters": "dup_para_char_frac",
        **{f"max_top_{n}_gram": f"top_{n}" for n in (2, 3, 4)},
        **{f"max_duplicated_{n}_grams": f"dup_{n}" for n in range(5, 11)},
    },
    "gopher": {
        **{"min_words": "min_doc_words", "max_words": "max_doc_words"},
        **{"min_word_length": "min_avg_word_length", "max_word_length": "max_avg_word_length"},
        **{"max_hashes": "max_symbol_word_ratio", "max_bullet_lines": "max_bullet_lines_ratio"},
        "max_ellipsis_lines": "max_ellipsis_lines_ratio",
        **{"min_letter_words": "max_non_alpha_words_ratio", "min_stop_words": "min_stop_words"},
    },
    "fineweb": {
        **{"min_punctuated_lines": "line_punct_thr", "max_short_lines": "short_line_thr"},
        **{"max_duplicate_line_characters": "char_duplicates_ratio"},
        "max_newlines_per_word": "new_line_ratio",
    },
}
PUBLISHED = {
    "repetition": {
        **{"max_duplicate_lines": 0.3, "max_duplicate_paragraphs": 0.3},
        **{"max_duplicate_line_characters": 0.2, "max_duplicate_paragraph_characters": 0.2},
        **{"max_top_2_gram": 0.2, "max_top_3_gram": 0.18, "max_top_4_gram": 0.16},
        **{"max_duplicated_5_grams": 0.15, "max_duplicated_6_grams": 0.14},
        **{"max_duplicated_7_grams": 0.13, "max_duplicated_8_grams": 0.12},
        **{"max_duplicated_9_grams": 0.11, "max_duplicated_10_grams": 0.1},
    },
    "gopher": {
        **{"min_words": 50, "max_words": 100, "min_word_length": 3, "max_word_length": 10},
        **{"max_hashes": 0.1, "max_bullet_lines": 0.9, "max_ellipsis_lines": 0.3},
        **{"min_letter_words": 0.8, "min_stop_words": 2},
    },
    "fineweb": {
        **{"min_punctuated_lines": 0.12, "max_short_lines": 0.67},
        **{"max_duplicate_line_characters": 0.1, "max_newlines_per_word": 0.3},
    },
}


def _filter(step: str, limits: dict[str, float], language: str, **more: Any) -> Any:
    """datatrove's filter of `step` with the limits of these of our keys only."""
    from datatrove.pipeline.filters import (
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    kinds = {
        "repetition": GopherRepetitionFilter,
        "gopher": GopherQualityFilter,
        "fineweb": FineWebQualityFilter,
    }
    arguments = OFF[step] | more
    for key, limit in limits.items():
        if key not in ARGUMENTS[step]:
            continue
        name = ARGUMENTS[step][key]
        if name.startswith(("top_", "dup_")) and name[4:].isdigit():
            group = f"{name[:3]}_n_grams"
            arguments[group] = (*arguments[group], (int(name[4:]), limit))
        else:
            arguments[name] = limit
    return kinds[step](language=language, **arguments)


def _c4(language: str, **more: Any) -> Any:
    from datatrove.pipeline.filters import C4QualityFilter

    return C4QualityFilter(language=language, **more)


def _verdict(rule: Any, text: str) -> tuple[bool, str]:
    """(keeps, its text afterwards or its reason)."""
    from datatrove.data import Document

    document = Document(text=text, id="0")
    answer = rule.filter(document)
    if isinstance(answer, tuple):
        return answer[0], answer[1]
    return answer, document.text


def record() -> None:
    """Writes FIXTURE."""
    head = {"grid": GRID, "limits": PUBLISHED}
    lines = [json.dumps(head)]
    lines += [json.dumps(_record(*made), ensure_ascii=False) for made in made_texts()]
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(FIXTURE, "wb", mtime=0) as file:
        file.write("\n".join(lines).encode())
    print(f"{len(lines) - 1} texts, {FIXTURE.stat().st_size:,} bytes")


def _record(language: str, text: str) -> dict[str, Any]:
    code = LANGUAGES[language]
    bits: dict[str, str] = {}
    for step, keys in PUBLISHED.items():
        for key, limit in keys.items():
            keeps = []
            for factor in GRID:
                try:
                    keeps.append(
                        "01"[_verdict(_filter(step, {key: limit * factor}, code), text)[0]]
                    )
                except (ZeroDivisionError, IndexError):
                    keeps.append("x")
            bits[f"{step}.{key}"] = "".join(keeps)
    return {
        "language": language,
        "text": text,
        "words": _lengths(text, code),
        "keeps": bits,
        "c4": [_recorded_c4(text, code, terminal) for terminal in (True, False)],
    }


def _recorded_c4(text: str, code: str, terminal: bool) -> dict[str, Any]:
    calm = {"filter_lorem_ipsum": False, "filter_curly_bracket": False}
    bare = _c4(code, filter_no_terminal_punct=terminal, min_num_sentences=-1, **calm)
    left = _verdict(bare, text)[1]
    counted = [
        _verdict(_c4(code, filter_no_terminal_punct=terminal, min_num_sentences=n, **calm), text)[0]
        for n in range(1, 13)
    ]
    alone = {"filter_no_terminal_punct": terminal, "min_num_sentences": -1}
    return {
        "left": left,
        "words": [[line, _lengths(line, code)] for line in dict.fromkeys(left.split("\n"))],
        "keeps": "".join("01"[k] for k in counted),
        "lorem": _verdict(_c4(code, filter_curly_bracket=False, **alone), text)[0],
        "curly": _verdict(_c4(code, filter_lorem_ipsum=False, **alone), text)[0],
        "all": _verdict(_c4(code, filter_no_terminal_punct=terminal), text)[0],
    }


def _lengths(text: str, code: str) -> list[int]:
    """datatrove's words as lengths: with white space between them they are the text."""
    from datatrove.utils.text import split_into_words

    words = split_into_words(text, code)
    at = 0
    for word in words:
        found = text.index(word, at)
        assert not text[at:found].strip(), (text, word)
        at = found + len(word)
    assert not text[at:].strip(), text
    return [len(word) for word in words]


# ---------------------------------------------------------------------- real pages

STEPS = ("repetition", "gopher", "c4", "fineweb")


def texts(files: list[str], out: str) -> None:
    """The texts of pages as the corpus makes them, with the limits of their language."""
    from eyas.corpus.steps.packs import resolve
    from eyas.recipe import Corpus

    rules = resolve(Corpus(preset="fineweb", steps=("language", *STEPS)))
    found: Counter[str] = Counter()
    with Path(out).open("w", encoding="utf-8") as file:
        for text, language in dict.fromkeys(_pages(files)):
            if language in LANGUAGES and text.strip():
                found[language] += 1
                limits = rules.for_language(language).limits
                row = {"language": language, "text": text, "limits": limits}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(dict(found.most_common()))


def _pages(files: list[str]) -> Iterator[tuple[str, str]]:
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    from eyas.corpus.steps.extract import extract_text
    from eyas.corpus.steps.language import detect_language

    def done(html: str) -> tuple[str, str]:
        text = extract_text(html, "resiliparse")
        return text, detect_language(text)[0] if text else ""

    for name in files:
        if name.endswith((".html", ".html.gz")):
            data = Path(name).read_bytes()
            yield done(
                (gzip.decompress(data) if name.endswith(".gz") else data).decode(errors="replace")
            )
            continue
        with Path(name).open("rb") as file:
            for item in ArchiveIterator(
                file, record_types=WarcRecordType.response, auto_decode="all"
            ):
                yield done(item.reader.read().decode(errors="replace"))


def judge(source: str, out: str) -> None:
    """datatrove's verdicts: each filter alone, then FineWeb's chain."""
    with Path(source).open(encoding="utf-8") as rows, Path(out).open("w") as file:
        for row in map(json.loads, rows):
            rules = {step: _limited(step, row) for step in STEPS}
            verdicts = {step: _said(_verdict(rules[step], row["text"])) for step in STEPS}
            text, chain = row["text"], ""
            for step in STEPS:
                rule = rules[step]
                if step == "c4":
                    rule = _c4(LANGUAGES[row["language"]], filter_no_terminal_punct=False)
                keeps, said = _verdict(rule, text)
                if not keeps:
                    chain = f"{step}: {said}"
                    break
                text = said
            file.write(json.dumps(verdicts | {"chain": chain}) + "\n")


def _said(verdict: tuple[bool, str]) -> str:
    return "" if verdict[0] else verdict[1]


def _limited(step: str, row: dict[str, Any]) -> Any:
    code, limits = LANGUAGES[row["language"]], row["limits"].get(step)
    if step == "c4":
        return _c4(code)
    more: dict[str, Any] = {}
    if step == "gopher":
        more["stop_words"] = limits["stop_words"]
    if step == "fineweb":
        more["stop_chars"] = tuple(row["limits"]["punctuation"]["terminal"])
    return _filter(step, limits, code, **more)


def compare(source: str, judged: str) -> None:
    """Shares of equal decisions by language, and every difference with its reason on both sides."""
    from eyas.corpus.steps.filters import filter_text
    from eyas.corpus.steps.packs import LanguageRules

    equal: dict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
    differences = []
    with Path(source).open(encoding="utf-8") as rows, Path(judged).open() as verdicts:
        for row, theirs in zip(map(json.loads, rows), map(json.loads, verdicts), strict=True):
            for name in (*STEPS, "chain"):
                limits = json.loads(json.dumps(row["limits"]))
                limits["punctuation"]["line_end"] = ".?!\"'"
                limits["c4"]["terminal_punctuation"] = name == "c4"
                steps = STEPS if name == "chain" else (name,)
                done = filter_text(row["text"], LanguageRules("", steps, limits))
                ours = done.failure.rule.reason if done.failure else ""
                same = bool(ours) == bool(theirs[name])
                equal[name][row["language"], same] += 1
                equal[name]["all", same] += 1
                if not same:
                    value = done.failure.value if done.failure else ""
                    differences.append(
                        (
                            row["language"],
                            name,
                            ours or "keep",
                            value,
                            theirs[name] or "keep",
                            row["text"],
                        )
                    )
    for name, counts in equal.items():
        print(name, {language: _share(counts, language) for language, _ in counts})
    for *said, text in differences:
        print(*said, repr(text[:80]), sep=" | ")


def _share(counts: Counter[tuple[str, bool]], language: str) -> float:
    same, other = counts[language, True], counts[language, False]
    return round(same / (same + other), 4)


def main(arguments: list[str]) -> None:
    verb, *rest = arguments or ["help"]
    if verb == "record":
        record()
    elif verb == "texts":
        texts(rest[:-1], rest[-1])
    elif verb == "judge":
        judge(*rest)
    elif verb == "compare":
        compare(*rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
