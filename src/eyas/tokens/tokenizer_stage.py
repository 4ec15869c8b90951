"""The tokenizer stage: the corpus in, `tokenizer/<id>-tokenizer.json` and its report out.

Trained in this process on a sample of the training split (`sample.py`), measured on held-out
documents, committed with a manifest of room "tokenizer". A finished one is not made again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tokenizers

from eyas.recipe import EyasError, Recipe
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    commit_manifest,
    crc32c,
    dump_json,
    identity,
    put_object,
    read_manifest,
)
from eyas.work import code_version, progress

from .fit import PATTERN, fit
from .report import measure
from .sample import Sampled, sample_documents
from .tokenizer import Tokenizer

__all__ = ["corpus_manifest", "manifest_reference", "train_tokenizer"]

VERSION = 1
MEASURED_BYTES = 4 * 2**20
_log = logging.getLogger("eyas.tokens")


def train_tokenizer(recipe: Recipe, store: Store) -> Manifest:
    """Train and commit, or return the manifest of the one that stands.

    Facts: `digest`, `vocab_size`, `reserved`, `end_of_text`, `pattern`, `library`,
    `bytes_per_token`, `fertility`, `unused_items`, `measured_on`, `languages`, and `trained_on`
    (bytes by language). Raises EyasError if
    there is no corpus, or too little text for the vocabulary asked for.
    """
    corpus = corpus_manifest(store)
    made_of = [o.crc32c for o in corpus.under("corpus/documents/")]
    name = identity("tokenizer", VERSION, made_of, recipe.section_hash("tokenizer"))
    current = read_manifest(store, "tokenizer")
    if current is not None and current.identity == name:
        return current
    keys = recipe.tokenizer
    taken: Counter[str] = Counter()
    with progress("read tokenizer sample", total=keys.sample_bytes) as advance:
        documents = sample_documents(store, corpus, "train", keys.sample_bytes, keys.temperature)
        data = fit(_texts(documents, taken, advance), keys.vocab_size, keys.reserved)
    tokenizer = Tokenizer(data)
    report = _measured(store, corpus, tokenizer, keys.reserved)
    report["trained_on"] = dict(sorted(taken.items()))
    _log.info("tokenizer: %d items, %s bytes a token", keys.vocab_size, report["bytes_per_token"])
    head = f"tokenizer/{name[:12]}"
    objects = (
        put_object(store, f"{head}-tokenizer.json", data),
        put_object(store, f"{head}-report.json", dump_json(report)),
    )
    facts = {
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "reserved": keys.reserved,
        "end_of_text": tokenizer.end_of_text,
        "pattern": PATTERN,
        "library": f"tokenizers {tokenizers.__version__}",
        **{k: v for k, v in report.items() if k not in ("documents", "bytes", "tokens", "words")},
    }
    manifest = Manifest(
        room="tokenizer",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(manifest_reference(store, corpus),),
        objects=objects,
        counters={"sample_bytes": taken.total()},
        facts=facts,
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
