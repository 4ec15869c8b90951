"""The tokenizer stage: the corpus in, `tokenizer/<id>-tokenizer.json` and its report out.

Trained in this process on a sample of the training split (`sample.py`), measured on held-out
documents, committed with a manifest of room "tokenizer". A finished one is not made again. With
`tokenizer.from` nothing is trained: the file of another store is verified, copied and committed
here, so that this store stays whole if that one goes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tokenizers

from eyas.recipe import EyasError, Recipe, TokenizerKeys
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
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
from .report import measure
from .sample import Sampled, sample_documents
from .tokenizer import Tokenizer

__all__ = ["corpus_manifest", "manifest_reference", "train_tokenizer"]

VERSION = 2
MEASURED_BYTES = 4 * 2**20
_log = logging.getLogger("eyas.tokens")


def train_tokenizer(recipe: Recipe, store: Store) -> Manifest:
    """Train (or take from `tokenizer.from`, else `data.from`) and commit, or return the manifest of
    what stands.

    Facts: `digest`, `vocab_size`, `reserved`, `end_of_text`, `library`; of a trained one also
    `bytes_per_token`, `fertility`, `unused_items`, `measured_on`, `languages` and the other figures
    of the report, `trained_on` (bytes by language) and, of a multi-word one, `multiword_share`,
    `entities` (see `_entity_facts`); of a taken one `taken_from`. Raises EyasError if there is no
    corpus, too little text for the vocabulary asked for, or no tokenizer to take.
    """
    if origin := recipe.tokenizer.from_ or recipe.data.from_:
        return _taken(recipe, store, origin)
    corpus = corpus_manifest(store)
    keys = recipe.tokenizer
    names = read_names(keys.entities) if keys.multiword else ()
    made_of = [o.crc32c for o in corpus.under("corpus/documents/")]
    name = identity("tokenizer", VERSION, made_of, recipe.section_hash("tokenizer"), names)
    current = read_manifest(store, "tokenizer")
    if current is not None and current.identity == name:
        return current
    taken: Counter[str] = Counter()
    with progress("read tokenizer sample", total=keys.sample_bytes) as advance:
        documents = sample_documents(store, corpus, "train", keys.sample_bytes, keys.temperature)
        trained = _trained(_texts(documents, taken, advance), keys, names)
    tokenizer = Tokenizer(trained.json)
    report = _measured(store, corpus, tokenizer, keys.reserved)
    report["trained_on"] = dict(sorted(taken.items()))
    if keys.multiword:
        report["multiword_share"] = round(trained.multiword_items / keys.vocab_size, 4)
        report["entities"] = _entity_facts(tokenizer, trained, names)
    _log.info("tokenizer: %d items, %s bytes a token", keys.vocab_size, report["bytes_per_token"])
    facts = {k: v for k, v in report.items() if k not in ("documents", "bytes", "tokens", "words")}
    manifest = Manifest(
        room="tokenizer",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(manifest_reference(store, corpus),),
        objects=(
            put_object(store, f"tokenizer/{name[:12]}-tokenizer.json", trained.json),
            put_object(store, f"tokenizer/{name[:12]}-report.json", dump_json(report)),
        ),
        counters={"sample_bytes": taken.total()},
        facts=_file_facts(tokenizer, keys.reserved) | facts,
    )
    return commit_manifest(store, manifest)


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


def _entity_facts(tokenizer: Tokenizer, trained: Trained, names: tuple[str, ...]) -> dict[str, Any]:
    """`listed` names of several words, how many of them are one item each after a space, `coverage`
    (their share), `found` in the text beside them, `items` spent on names and their beginnings."""
    listed = [name for name in names if " " in name]
    whole = sum(len(tokenizer.encode(f" {name}")) == 1 for name in listed)
    return {
        "listed": len(listed),
        "single_items": whole,
        "coverage": round(whole / len(listed), 4) if listed else 0.0,
        "found": trained.entities_found,
        "items": trained.entity_items,
    }


def _taken(recipe: Recipe, store: Store, url: str) -> Manifest:
    """The current tokenizer of another store, verified and copied."""
    origin = open_store(url)
    theirs = read_manifest(origin, "tokenizer")
    if theirs is None:
        raise EyasError(f"{url} holds no tokenizer (tokenizer.from); name a store that has one")
    name = identity("tokenizer", VERSION, "taken", theirs.facts["digest"])
    current = read_manifest(store, "tokenizer")
    if current is not None and current.identity == name:
        return current
    reference = next(o for o in theirs.objects if o.key.endswith("-tokenizer.json"))
    tokenizer = Tokenizer(read_object(origin, reference))
    if tokenizer.digest != theirs.facts["digest"]:
        raise EyasError(
            f"{url}: {reference.key} is not the file that its manifest names (SHA-256 "
            f"{tokenizer.digest[:12]}, not {theirs.facts['digest'][:12]}); train it anew there"
        )
    vouched = manifest_reference(origin, theirs)
    manifest = Manifest(
        room="tokenizer",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(dataclasses.replace(vouched, key=f"{url.rstrip('/')}/{vouched.key}"),),
        objects=(put_object(store, f"tokenizer/{name[:12]}-tokenizer.json", tokenizer.json),),
        facts={**theirs.facts, "taken_from": url},
    )
    return commit_manifest(store, manifest)


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
    store: Store, corpus: Manifest, tokenizer: Tokenizer, reserved: int
) -> dict[str, Any]:
    """The report on held-out documents, languages alike; on training ones if none are held out."""
    for split in ("validation", "train"):
        documents = sample_documents(store, corpus, split, MEASURED_BYTES, temperature=0.0)
        report = measure(tokenizer, documents, reserved)
        if report["documents"]:
            break
    return report | {"measured_on": split}
