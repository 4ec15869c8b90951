"""What other limits would have kept: every document judged again from its recorded values.

In: a corpus manifest and changed limits (`gopher.min_words=30`, `language_threshold=.5`,
`ar.gopher.min_stop_words=1` for one language); out: kept before and after, by language and reason.
No text is read and nothing is run. The answer is that of a real run for every document whose values
were recorded, which are all that passed the language stage; those that a lower language threshold
would let in were never measured and are counted apart. De-duplication comes after the filters and
is not done again here. Keys that shape the text or the values cannot be answered from values.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyas.corpus.documents import read_columns
from eyas.corpus.steps.packs import LanguageRules, Ruleset
from eyas.corpus.steps.rules import RULES, SHAPING
from eyas.recipe import Corpus, EyasError, UsageError
from eyas.store import Manifest, ObjectRef, Store, read_object

__all__ = ["Change", "Outcome", "WhatIf", "parse_change", "what_if"]

THRESHOLD = "language_threshold"
_SCORE = "language.score"
_EXAMPLES = 3  # of one language and reason
_SHOWN = 12  # either way
_KEPT, _UNCERTAIN, _OTHER, _UNMEASURED = range(4)
_NAMES = [
    *("kept", "language/uncertain_language", "language/other_language", "never measured"),
    *(f"{rule.step}/{rule.reason}" for rules in RULES.values() for rule in rules),
]
_CODES = {name: code for code, name in enumerate(_NAMES)}
_Moves = Counter[tuple[str, int, int]]


@dataclass(frozen=True)
class Change:
    """A limit with another value, for one language or ("") for all. `key` is `step.key`, or
    `language_threshold`."""

    key: str
    value: float
    language: str = ""

    def __str__(self) -> str:
        return f"{self.language and self.language + '.'}{self.key}={self.value:g}"


@dataclass(frozen=True)
class Outcome:
    """Documents of one language: kept by the filters before and after; `gained` by the reason that
    dropped them, `lost` by the one that would; those never measured that would now be."""

    before: int = 0
    after: int = 0
    gained: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    unmeasured: int = 0


@dataclass(frozen=True)
class WhatIf:
    """The answer. `documents` had their values recorded; `moved` would be dropped for another
    reason than they were; `examples` are rows of `language`, `reason` and `url`, under "gained" and
    "lost"."""

    changes: tuple[Change, ...]
    documents: int
    languages: Mapping[str, Outcome]
    moved: int
    examples: Mapping[str, Sequence[Mapping[str, str]]]

    @property
    def total(self) -> Outcome:
        """All languages."""
        found = self.languages.values()
        gained, lost = Counter[str](), Counter[str]()
        for o in found:
            gained.update(o.gained)
            lost.update(o.lost)
        before, after = sum(o.before for o in found), sum(o.after for o in found)
        unmeasured = sum(o.unmeasured for o in found)
        return Outcome(before, after, _ranked(gained), _ranked(lost), unmeasured)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "changes": [str(change) for change in self.changes],
            "documents": self.documents,
            "total": dataclasses.asdict(self.total),
            "languages": {code: dataclasses.asdict(o) for code, o in self.languages.items()},
            "moved": self.moved,
            "examples": {name: list(rows) for name, rows in self.examples.items()},
        }


def parse_change(text: str) -> Change:
    """From `KEY=VALUE` or `LANGUAGE.KEY=VALUE`, the key also as in a recipe, with `corpus.` in
    front. Raises UsageError for anything else."""
    name, equals, raw = text.partition("=")
    name = name.strip().removeprefix("corpus.")
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not equals or not math.isfinite(value):
        raise UsageError(f'"{text}" is no change; write KEY=NUMBER such as gopher.min_words=30')
    language, _, key = name.partition(".")
    if key == THRESHOLD or key.count("."):
        return Change(key, value, language)
    return Change(name, value)


def what_if(store: Store, manifest: Manifest, changes: Iterable[Change]) -> WhatIf:
    """Judge all recorded values again. Raises UsageError for a key that cannot be answered, and
    EyasError for a corpus that recorded no values."""
    changes = tuple(changes)
    facts = _report(store, manifest)
    judge = _Judge(Ruleset.from_json(facts["ruleset"]), facts["settings"]["languages"], changes)
    judge.check(facts)
    moves: _Moves = Counter()
    picked: dict[tuple[str, int, int], list[str]] = {}
    for ref in manifest.under("corpus/values/"):
        for table in read_columns(store, ref, judge.columns):
            _count(judge, table, moves, picked)
    return WhatIf(
        changes=changes,
        documents=sum(n for (_, before, _), n in moves.items() if before not in (1, 2)),
        languages=_outcomes(moves),
        moved=sum(n for (_, b, a), n in moves.items() if b != a and b > _OTHER and a != _KEPT),
        examples=_examples(store, manifest, moves, picked),
    )


class _Judge:
    """The rules before and after, by language, and the columns of values that they read."""

    def __init__(
        self, ruleset: Ruleset, languages: Iterable[str], changes: Sequence[Change]
    ) -> None:
        self._ruleset = ruleset
        self._languages = frozenset(languages)
        self._changes = changes
        names = [f"{r.step}.{r.measure}" for step in ruleset.steps for r in RULES.get(step, ())]
        self._values = list(dict.fromkeys([_SCORE, *names]))
        self.columns = ["id", "language", *self._values]

    def check(self, facts: Mapping[str, Any]) -> None:
        """Raises UsageError for a change that no recorded value answers."""
        if not self._changes:
            raise UsageError("nothing is changed; name a limit such as gopher.min_words=30")
        seen = sorted({*facts["languages"], *facts["rejects_by_language"]} - {""})
        named = Counter((change.language, change.key) for change in self._changes)
        for change in self._changes:
            if named[change.language, change.key] > 1:
                raise UsageError(f"{change}: this limit is given twice; name it once")
            if change.value < 0:
                raise UsageError(f"{change}: a limit is at least 0")
            if change.language and change.language not in seen:
                raise UsageError(
                    f'{change}: no page was labelled "{change.language}"; '
                    f"this corpus has {', '.join(seen)}"
                )
            if change.key != THRESHOLD:
                _check_key(change.key, self._ruleset.steps)

    def verdicts(
        self, language: str, table: pa.Table
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
        """What becomes of the rows, all of one language, before and after: codes of `_NAMES`."""
        values = {n: table[n].to_numpy(zero_copy_only=False) for n in self._values}
        rules = self._ruleset.for_language(language)
        before = self._decide(language, values, rules)
        after = self._decide(language, values, self._changed(language, rules))
        after[(before == _UNCERTAIN) & (after != _UNCERTAIN)] = _UNMEASURED
        return before, after

    def _decide(
        self, language: str, values: Mapping[str, npt.NDArray[np.float64]], rules: LanguageRules
    ) -> npt.NDArray[np.int16]:
        found = np.full(len(values[_SCORE]), _KEPT, np.int16)
        if self._languages and language not in self._languages:
            found[:] = _OTHER
            return found
        found[values[_SCORE] < rules.limits["language"]["threshold"]] = _UNCERTAIN
        for step in rules.steps:
            for rule in RULES.get(step, ()):
                value, limit = values[f"{step}.{rule.measure}"], rules.limits[step][rule.key]
                fails = value < limit if rule.side == "low" else value > limit
                found[fails & (found == _KEPT)] = _CODES[f"{step}/{rule.reason}"]
        return found

    def _changed(self, language: str, rules: LanguageRules) -> LanguageRules:
        limits = {step: dict(keys) for step, keys in rules.limits.items()}
        for change in sorted(self._changes, key=lambda c: bool(c.language)):  # a language's last
            step, _, key = change.key.partition(".")
            if change.key == THRESHOLD:
                step, key = "language", "threshold"
            if change.language in ("", language) and step in limits:
                limits[step][key] = change.value
        return LanguageRules(rules.pack, rules.steps, limits)


def _check_key(key: str, steps: Sequence[str]) -> None:
    step, _, name = key.partition(".")
    legal = [f"{s}.{rule.key}" for s in steps for rule in RULES.get(s, ())]
    if key in legal:
        return
    if name in SHAPING.get(step, ()):
        raise UsageError(
            f"{key} shapes the text or what is measured, so recorded values cannot answer for it; "
            f"`eyas curate RECIPE --set corpus.{key}=…` runs again from the filters on"
        )
    if step == "url":
        raise UsageError(
            "url decides before a page is read, and what it drops was never measured; curate again"
        )
    if not name and key in {f.name for f in dataclasses.fields(Corpus)}:
        raise UsageError(
            f"{key} is no limit of the filters, so recorded values cannot answer for it; "
            f"`eyas curate RECIPE --set corpus.{key}=…` runs again what it touches"
        )
    if step in RULES and step not in steps:
        raise UsageError(
            f"{step} is not among the steps of this corpus ({', '.join(steps)}), so its values "
            "were never measured"
        )
    close = difflib.get_close_matches(key, [THRESHOLD, *legal], n=1)
    hint = f"did you mean {close[0]}?" if close else f"legal are {THRESHOLD}, {', '.join(legal)}"
    raise UsageError(f'there is no limit "{key}"; {hint}')


def _report(store: Store, manifest: Manifest) -> dict[str, Any]:
    refs = [o for o in manifest.under("corpus/report-") if o.key.endswith(".json")]
    facts: dict[str, Any] = json.loads(read_object(store, refs[0])) if refs else {}
    if "ruleset" not in facts:
        raise EyasError(
            f"{store.url}: this corpus was made before values were recorded; `eyas curate RECIPE` "
            "makes it again"
        )
    return facts


def _count(
    judge: _Judge,
    table: pa.Table,
    moves: _Moves,
    picked: dict[tuple[str, int, int], list[str]],
) -> None:
    """Add the rows of one table: how many went from which verdict to which, and some ids."""
    for language in pc.unique(table["language"]).to_pylist():
        rows = table.filter(pc.equal(table["language"], language))
        before, after = judge.verdicts(language, rows)
        pairs, counts = np.unique(np.stack((before, after)), axis=1, return_counts=True)
        for b, a, n in zip(*pairs.tolist(), counts.tolist(), strict=True):
            moves[language, b, a] += n
            held = picked.setdefault((language, b, a), [])
            if _KEPT in (b, a) and b != a and len(held) < _EXAMPLES:
                places = np.flatnonzero((before == b) & (after == a))[: _EXAMPLES - len(held)]
                held += rows["id"].take(places).to_pylist()


def _outcomes(moves: _Moves) -> dict[str, Outcome]:
    """By language, those with most documents kept before first."""
    found = {}
    for language in {language for language, _, _ in moves}:
        mine = {(b, a): n for (where, b, a), n in moves.items() if where == language}
        found[language] = Outcome(
            before=sum(n for (b, _), n in mine.items() if b == _KEPT),
            after=sum(n for (_, a), n in mine.items() if a == _KEPT),
            gained=_ranked({_NAMES[b]: n for (b, a), n in mine.items() if a == _KEPT != b}),
            lost=_ranked({_NAMES[a]: n for (b, a), n in mine.items() if b == _KEPT != a}),
            unmeasured=sum(n for (_, a), n in mine.items() if a == _UNMEASURED),
        )
    order = sorted(found, key=lambda code: (-found[code].before, -found[code].after, code))
    return {code: found[code] for code in order}


def _ranked(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _examples(
    store: Store,
    manifest: Manifest,
    moves: _Moves,
    picked: Mapping[tuple[str, int, int], Sequence[str]],
) -> dict[str, list[dict[str, str]]]:
    """Some URLs, those of the greatest moves first; of documents removed on request none."""
    order = sorted(picked, key=lambda move: (-moves[move], move))
    gained = [(m, id_) for m in order if m[2] == _KEPT for id_ in picked[m]][:_SHOWN]
    lost = [(m, id_) for m in order if m[1] == _KEPT for id_ in picked[m]][:_SHOWN]
    rejects, documents = manifest.under("corpus/rejects/"), manifest.under("corpus/documents/")
    urls = _urls(store, rejects, {id_ for _, id_ in gained})
    urls |= _urls(store, (*documents, *rejects), {id_ for _, id_ in lost})
    return {
        name: [
            {"language": move[0], "reason": _NAMES[max(move[1:])], "url": urls[id_]}
            for move, id_ in rows
            if id_ in urls
        ]
        for name, rows in (("gained", gained), ("lost", lost))
    }


def _urls(store: Store, refs: Iterable[ObjectRef], ids: set[str]) -> dict[str, str]:
    """The URLs of these documents, from the first object on until all are found."""
    found: dict[str, str] = {}
    wanted = pa.array(sorted(ids), pa.string())
    for ref in refs:
        if len(found) == len(ids):
            break
        for table in read_columns(store, ref, ["id", "url"]):
            rows = table.filter(pc.is_in(table["id"], wanted))
            found |= dict(zip(rows["id"].to_pylist(), rows["url"].to_pylist(), strict=True))
    return found
