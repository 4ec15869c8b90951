"""The tokenizer stage: texts in, `tokenizer/<id>-tokenizer.json` and its report out.

Trained in this process on a sample (`sample.py`) of the training split of the corpus and of foreign
text (`texts.py`), measured on held-out documents, committed with a manifest of room "tokenizer". A
finished one is not made again. With `tokenizer.from` nothing is trained: the file of another store
is verified, copied and committed here, so that this store stays whole if that one goes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tokenizers

from eyas.recipe import EyasError, Recipe, TokenizerKeys
from eyas.store import (
    Corrupt,
    Manifest,
    ObjectRef,
    Store,
    StoreError,
    commit_manifest,
    crc32c,
    dump_json,
    identity,
    open_store,
    put_object,
    read_manifest,
    read_object,
)
from eyas.work import code_version, progress

from .entities import read_names
from .fit import Multiword, Trained, train
from .name_places import NamePlaces
from .report import measure
from .sample import Sampled, Texts, sample_documents
from .texts import RecipeTexts, recipe_texts
from .tokenizer import Tokenizer

__all__ = [
    "corpus_manifest",
    "manifest_reference",
    "tokenizer_size",
    "train_tokenizer",
]

VERSION = 3
MEASURED_BYTES = 4 * 2**20
_log = logging.getLogger("eyas.tokens")


def train_tokenizer(recipe: Recipe, store: Store) -> Manifest:
    """Train (or take from `tokenizer.from`, else `data.from`) and commit, or return the manifest of
    what stands.

    Facts: `digest`, `vocab_size`, `reserved`, `end_of_text`, `library`; of a trained one also
    `bytes_per_token`, `fertility`, `unused_items`, `measured_on`, `languages` and the other figures
    of the report, `trained_on` (bytes by language) and, of a multi-word one, `multiword_share`,
    `entities` (see `_entity_facts`); of a taken one `taken_from`. Raises EyasError if there is no
    text, too little for the vocabulary asked for, or no tokenizer to take.
    """
    if origin := _taken_from(recipe):
        return _taken(recipe, store, origin)
    texts = recipe_texts(recipe, store)
    keys = recipe.tokenizer
    names = read_names(keys.entities) if keys.multiword else ()
    settings = recipe.section_hash("tokenizer"), names
    name = identity("tokenizer", VERSION, texts.made_of, *settings)
    origin = identity("tokenizer", VERSION, texts.made_of_before_removals, *settings)
    current = read_manifest(store, "tokenizer")
    if current is not None and (current.identity == name or _outlives(texts, current, origin)):
        return current
    taken: Counter[str] = Counter()
    with progress("read tokenizer sample", total=keys.sample_bytes) as advance:
        documents = sample_documents(texts.all, "train", keys.sample_bytes, keys.temperature)
        trained = _trained(_texts(documents, taken, advance), keys, names)
    tokenizer = Tokenizer(trained.json)
    places = NamePlaces(names)
    report = _measured(texts.all, tokenizer, keys.reserved, places)
    report["trained_on"] = dict(sorted(taken.items()))
    if keys.multiword:
        report["multiword_share"] = round(trained.multiword_items / keys.vocab_size, 4)
        report["entities"] = _entity_facts(tokenizer, trained, names, places)
    _log.info("tokenizer: %d items, %s bytes a token", keys.vocab_size, report["bytes_per_token"])
    facts = {k: v for k, v in report.items() if k not in ("documents", "bytes", "tokens", "words")}
    corpus = [manifest_reference(store, texts.corpus)] if texts.corpus else []
    listed = _list_inputs(store, texts, name)
    manifest = Manifest(
        room="tokenizer",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(*corpus, *listed),
        objects=(
            put_object(store, f"tokenizer/{name[:12]}-tokenizer.json", trained.json),
            put_object(store, f"tokenizer/{name[:12]}-report.json", dump_json(report)),
            *listed,
        ),
        counters={"sample_bytes": taken.total()},
        facts=_file_facts(tokenizer, keys.reserved) | facts | {"before_removals": origin},
    )
    return commit_manifest(store, manifest)


def _outlives(texts: RecipeTexts, current: Manifest, origin: str) -> bool:
    """Whether documents were only taken out since: a tokenizer that models were trained with is not
    thrown away for that."""
    if texts.corpus is None or "before_removals" not in texts.corpus.facts:
        return False
    removed = texts.corpus.facts["before_removals"] != texts.corpus.identity
    return removed and current.facts.get("before_removals") == origin


def _taken_from(recipe: Recipe) -> str:
    """The store whose tokenizer the recipe takes over; "" if it trains one."""
    return recipe.tokenizer.from_ or recipe.data.from_


def tokenizer_size(recipe: Recipe) -> int:
    """Items of the tokenizer that the recipe trains or takes over. Raises EyasError if the store to
    take it from has none."""
    if origin := _taken_from(recipe):
        taken = read_manifest(open_store(recipe.store), "tokenizer")
        return int(_current(open_store(origin), taken).facts["vocab_size"])
    return recipe.tokenizer.vocab_size


def _trained(texts: Iterable[str], keys: TokenizerKeys, names: tuple[str, ...]) -> Trained:
    multiword = None
    if keys.multiword:
        multiword = Multiword(
            keys.multiword_share, keys.multiword_words, keys.multiword_documents, names
        )
    return train(texts, keys.vocab_size, keys.reserved, keys.digits, keys.normalisation, multiword)


def _file_facts(tokenizer: Tokenizer, reserved: int) -> dict[str, Any]:
    return {
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "reserved": reserved,
        "end_of_text": tokenizer.end_of_text,
        "library": f"tokenizers {tokenizers.__version__}",
    }


def _entity_facts(
    tokenizer: Tokenizer, trained: Trained, names: tuple[str, ...], places: NamePlaces
) -> dict[str, Any]:
    """`listed` names of several words, how many of them are one item each after a space, `coverage`
    (their share); `occurrences` of them in the text measured, how many lie in one item,
    `occurrence_coverage`; `found` in the training text beside them, `items` spent on names and
    their beginnings."""
    listed = [name for name in names if " " in name]
    whole = sum(len(tokenizer.encode(f" {name}")) == 1 for name in listed)
    return {
        "listed": len(listed),
        "single_items": whole,
        "coverage": round(whole / len(listed), 4) if listed else 0.0,
        "occurrences": places.occurrences,
        "occurrences_single": places.single,
        "occurrence_coverage": round(places.single / max(places.occurrences, 1), 4),
        "found": trained.entities_found,
        "items": trained.entity_items,
    }


def _taken(recipe: Recipe, store: Store, url: str) -> Manifest:
    """The current tokenizer of another store, verified and copied."""
    origin = open_store(url)
    current = read_manifest(store, "tokenizer")
    theirs = _current(origin, current)
    name = identity("tokenizer", VERSION, "taken", theirs.facts["digest"])
    if current is not None and current.identity == name:
        return current
    reference = next(o for o in theirs.objects if o.key.endswith("-tokenizer.json"))
    tokenizer = Tokenizer(read_object(origin, reference))
    if tokenizer.digest != theirs.facts["digest"]:
        raise EyasError(
            f"{origin.url}: {reference.key} is not the file that its manifest names (SHA-256 "
            f"{tokenizer.digest[:12]}, not {theirs.facts['digest'][:12]}); train it anew there"
        )
    vouched = manifest_reference(origin, theirs)
    manifest = Manifest(
        room="tokenizer",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(dataclasses.replace(vouched, key=f"{origin.url.rstrip('/')}/{vouched.key}"),),
        objects=(put_object(store, f"tokenizer/{name[:12]}-tokenizer.json", tokenizer.json),),
        facts={**theirs.facts, "taken_from": origin.url},
    )
    return commit_manifest(store, manifest)


def _current(origin: Store, own: Manifest | None) -> Manifest:
    """The tokenizer of a store that one is to be taken from; if it is gone or out of reach, `own`
    where that was taken from there before."""
    gone: Exception | None = None
    manifest = None
    try:
        manifest = read_manifest(origin, "tokenizer")
    except Corrupt:
        raise
    except StoreError as error:
        gone = error
    if manifest is not None:
        return manifest
    if own is not None and own.facts.get("taken_from") == origin.url:
        _log.warning(
            "%s: the tokenizer that was taken from there is not to be had any more (%s); going on "
            "with the copy",
            origin.url,
            gone or "there is none",
        )
        return own
    if gone is not None:
        raise gone
    raise EyasError(
        f"{origin.url} holds no tokenizer to take over ([tokenizer] from, or [data] from); "
        "name a store that has one, or make it there with `eyas tokenize RECIPE`"
    )


def corpus_manifest(store: Store) -> Manifest:
    """The store's current corpus. Raises EyasError if there is none."""
    manifest = read_manifest(store, "corpus")
    if manifest is None:
        raise EyasError(f"{store.url} holds no corpus; make one with `eyas curate RECIPE`")
    return manifest


def manifest_reference(store: Store, manifest: Manifest) -> ObjectRef:
    """A committed manifest as an input: it vouches for all its objects, however many."""
    key = f"{manifest.room}/manifest-{manifest.version:06d}.json"
    data = store.get(key)
    return ObjectRef(key, len(data), f"{crc32c(data):08x}")


def _list_inputs(store: Store, texts: RecipeTexts, name: str) -> list[ObjectRef]:
    """The foreign files, however many, as one object that vouches for them; none without any."""
    if not texts.foreign:
        return []
    data = dump_json(texts.files)
    return [put_object(store, f"tokenizer/{name[:12]}-inputs.json", data, rows=len(texts.files))]


def _texts(
    documents: Iterable[Sampled], taken: Counter[str], advance: Callable[[float], None]
) -> Iterator[str]:
    """The texts, their bytes counted by language on the way."""
    for document in documents:
        size = len(document.text.encode())
        taken[document.language] += size
        advance(size)
        yield document.text


def _measured(
    texts: Sequence[Texts], tokenizer: Tokenizer, reserved: int, places: NamePlaces
) -> dict[str, Any]:
    """The report on held-out documents, languages alike; on training ones if none are held out."""
    for split in ("validation", "train"):
        documents = sample_documents(texts, split, MEASURED_BYTES, temperature=0.0)
        report = measure(tokenizer, documents, reserved, places)
        if report["documents"]:
            break
    return report | {"measured_on": split}
