"""Import: a Hugging Face folder in, a committed checkpoint out, a tensor in memory at a time.

Values go from the files through a conversion of a few MiB at a time straight into the store's
objects; only a tensor that has to be cut up (a fused query, key and value, a transposed matrix) is
held whole. The commit is written last: an import that dies before it leaves objects that nothing
names.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eyas.model import family_of
from eyas.recipe import UsageError
from eyas.store import Manifest, Store, commit_manifest, identity, put_object, read_manifest
from eyas.tokens import Tokenizer
from eyas.work import code_version, progress

from .attempts import take_attempt
from .commit import Commit, list_commits
from .hf_folder import HFFolder, open_hf_folder
from .hf_links import Link
from .open_model import MASTER
from .payload import dtype_name, tensor_pieces
from .save import commit_parts, open_save, stream_part

__all__ = ["import_hf"]


def import_hf(folder: str | Path, store: Store) -> Commit:
    """Commit the folder's weights, as float32 masters without optimizer state, as step 0 of a new
    attempt, and its `tokenizer.json` as the store's tokenizer if the store has none.

    Each block of the network is written as the part of one rank. The commit's facts say the family,
    the dtypes of the files (so that an export can give the same bits back), the licence files with
    their texts, and why a tokenizer that the folder has was not taken. Raises UsageError for a
    store that has commits or another tokenizer, and what `load` of a folder does.
    """
    opened = open_hf_folder(folder)
    if commits := list_commits(store):
        last = commits[-1]
        raise UsageError(
            f"{store.url} holds checkpoints already (up to {last.attempt}-{last.step}), which an "
            "import would stand before; import into a store of its own"
        )
    tokenizer, why_not = opened.tokenizer()
    known = read_manifest(store, "tokenizer")
    if tokenizer is not None and known is not None and known.facts["digest"] != tokenizer.digest:
        raise UsageError(
            f"{store.url} has another tokenizer than {folder}; import into a store of its own"
        )
    attempt = take_attempt(store, {"import": opened.path.name, "host": socket.gethostname()})
    facts = _facts(opened, tokenizer, why_not)
    point = open_save(store, attempt, 0, facts)
    reports = []
    with progress("import", opened.size, unit="bytes") as advance:
        for part, links in enumerate(_blocks(opened.links.links)):
            tensors = {MASTER + n: tuple(opened.links.ours[n].shape) for x in links for n in x.ours}
            reports.append(stream_part(store, point, part, tensors, _bytes(opened, links, advance)))
    if tokenizer is not None and known is None:
        _put_tokenizer(store, tokenizer, opened.path)
    return commit_parts(store, point, facts, reports)


def _facts(opened: HFFolder, tokenizer: Tokenizer | None, why_not: str) -> dict[str, Any]:
    return {
        "shape": opened.shape.to_dict(),
        "family": family_of(opened.shape),
        "tokenizer": tokenizer.digest if tokenizer else None,
        "tokenizer_not_taken": why_not or None,
        "special_ids": opened.special_ids(),
        "tokenizer_config": opened.tokenizer_config() if tokenizer else None,
        "dtypes": _dtype_facts(opened.dtypes()),
        "licences": opened.licences(),
        "imported_from": opened.path.resolve().name,
        "code": code_version(),
    }


def _dtype_facts(dtypes: Mapping[str, torch.dtype]) -> dict[str, Any]:
    """The most frequent one, and which tensors have another."""
    default = Counter(dtypes.values()).most_common(1)[0][0]
    others = {name: dtype_name(dtype) for name, dtype in dtypes.items() if dtype != default}
    return {"default": dtype_name(default), "others": others}


def _blocks(links: Sequence[Link]) -> list[list[Link]]:
    """Links by block of the network, those outside of any block together by place."""
    groups: dict[str, list[Link]] = {}
    for link in links:
        first, number, *_ = link.ours[0].split(".")
        groups.setdefault(number if first == "blocks" else first, []).append(link)
    return list(groups.values())


def _bytes(
    opened: HFFolder, links: Sequence[Link], advance: Callable[[float], None]
) -> Iterator[memoryview]:
    """The float32 bytes of ours of these links, one after another."""
    for link in links:
        for values in opened.values(link):
            yield from tensor_pieces(values.float())
            advance(values.numel() * values.element_size())


def _put_tokenizer(store: Store, tokenizer: Tokenizer, folder: Path) -> None:
    name = identity("tokenizer", "imported", tokenizer.digest)
    facts = {
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
        "imported_from": folder.name,
    }
    reference = put_object(store, f"tokenizer/{name[:12]}-tokenizer.json", tokenizer.json)
    commit_manifest(
        store,
        Manifest(
            room="tokenizer",
            identity=name,
            code=code_version(),
            objects=(reference,),
            facts=facts,
        ),
    )
