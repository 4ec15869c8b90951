"""Import: a Hugging Face folder in, a committed checkpoint out, one block in memory at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from eyas.recipe import UsageError
from eyas.store import Manifest, Store, commit_manifest, identity, put_object, read_manifest
from eyas.tokens import Tokenizer
from eyas.work import code_version

from .attempts import take_attempt
from .commit import Commit, list_commits
from .falcon_folder import FalconFolder, open_falcon_folder
from .open_model import MASTER
from .save import commit_parts, open_save, write_part
from .slices import Slice

__all__ = ["import_hf"]


def import_hf(folder: str | Path, store: Store) -> Commit:
    """Commit the folder's weights, as float32 masters without optimizer state, as step 0 of a new
    attempt, and its `tokenizer.json` as the store's tokenizer if the store has none.

    Each block of the network is written as the part of one rank, so memory holds one block. Raises
    UsageError for a store that has commits or another tokenizer, and what `load` of a folder does.
    """
    opened = open_falcon_folder(folder)
    if commits := list_commits(store):
        last = commits[-1]
        raise UsageError(
            f"{store.url} holds checkpoints already (up to {last.attempt}-{last.step}), which an "
            "import would stand before; import into a store of its own"
        )
    tokenizer = opened.tokenizer()
    if tokenizer is not None:
        _put_tokenizer(store, tokenizer, opened.path)
    attempt = take_attempt(store, {"import": opened.path.name, "host": socket.gethostname()})
    facts = {
        "shape": opened.shape.to_dict(),
        "tokenizer": tokenizer.digest if tokenizer else None,
        "imported_from": opened.path.name,
        "code": code_version(),
    }
    point = open_save(store, attempt, 0, facts)
    reports = []
    for part, slices in enumerate(_parts(opened)):
        report, error = write_part(store, point, part, slices)
        if error is not None:
            raise error
        reports.append(report)
    return commit_parts(store, point, facts, reports)


def _parts(opened: FalconFolder) -> Iterator[list[Slice]]:
    for group in opened.groups():
        yield [Slice.whole(MASTER + name, tensor.float()) for name, tensor in group.items()]


def _put_tokenizer(store: Store, tokenizer: Tokenizer, folder: Path) -> None:
    current = read_manifest(store, "tokenizer")
    if current is not None:
        if current.facts.get("digest") != tokenizer.digest:
            raise UsageError(
                f"{store.url} has another tokenizer than {folder}; import into a store of its own"
            )
        return
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
