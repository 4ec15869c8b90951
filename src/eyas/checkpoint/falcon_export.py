"""Export: a checkpoint out as a Hugging Face folder, compared with ours before it stands there.

The weights are read, translated and written a block of the network at a time, in float32, so that
an export imported again is bit for bit what it was. Everything goes into a temporary folder beside
the target; transformers loads it and must give our logits; only then it is renamed, so what stands
at the target is whole and checked. A crash leaves a folder `.tmp-...` that nothing believes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from eyas.recipe import UsageError
from eyas.store import Store

from .commit import Commit, read_commit, resolve
from .errors import CheckpointError
from .falcon_check import compare
from .falcon_folder import SUMS, WEIGHTS, FalconPlan, is_falcon_folder, plan_falcon, sha256_file
from .model_card import model_card
from .newest import newest_whole
from .open_model import MASTER, find_tokenizer, load, shape_of
from .payload import Entry, dtype_name, dtype_of, encode_header, tensor_pieces
from .read_slices import load_slices

__all__ = ["ExportReport", "export_hf"]

SHARD = 5 * 10**9
LARGEST_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class ExportReport:
    """What was written: `files` by name, `bytes` in all. `max_logit_difference` is the largest
    absolute one between transformers and us, on the same ids in float32; `greedy_equal` whether
    both continue a prompt with the same tokens; `compared_on` says on what."""

    folder: Path
    files: tuple[str, ...]
    bytes: int
    max_logit_difference: float
    greedy_equal: bool
    compared_on: str


def export_hf(ref: str, folder: str | Path) -> ExportReport:
    """Write `STORE[@...]` as a new Hugging Face folder that transformers loads, with tokenizer,
    model card and `SHA256SUMS`. "latest" is the newest whole checkpoint.

    Raises UsageError if the folder exists, CheckpointError if transformers does not give what we
    give (logits within 1e-3); then there is no folder.
    """
    target = Path(folder).absolute()
    if is_falcon_folder(ref):
        raise UsageError(f"{ref} is a Hugging Face folder already; export wants STORE[@STEP]")
    if target.exists():
        raise UsageError(f"{target} exists; name a folder that does not")
    store, selector = resolve(ref)
    commit = newest_whole(store) if selector == "latest" else read_commit(store, selector)
    if commit is None:
        raise CheckpointError(f"{store.url} holds no checkpoint")
    temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(4)}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be made: {error.strerror}") from error
    try:
        _write(store, commit, temporary)
        model = load(f"{store.url}@{commit.attempt}-{commit.step}")
        found = compare(temporary, store, model, find_tokenizer(store, commit))
        if not found.max_logit_difference <= LARGEST_DIFFERENCE:
            raise CheckpointError(
                f"transformers gives other logits for {commit.key} than Eyas: the largest "
                f"difference is {found.max_logit_difference:.3g}, {LARGEST_DIFFERENCE:g} is "
                "allowed; nothing was exported"
            )
        _sync(temporary)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)
    files = sorted(p for p in target.iterdir())
    return ExportReport(
        folder=target,
        files=tuple(p.name for p in files),
        bytes=sum(p.stat().st_size for p in files),
        max_logit_difference=found.max_logit_difference,
        greedy_equal=found.greedy_equal,
        compared_on=found.compared_on,
    )


def _write(store: Store, commit: Commit, folder: Path) -> None:
    shape = shape_of(commit)
    dtype = dtype_of(commit.tensors[f"{MASTER}embedding.weight"].dtype)
    plan = plan_falcon(shape, dtype)
    tokenizer = find_tokenizer(store, commit)
    ids = ("bos_token_id", "eos_token_id")
    end = {} if tokenizer is None else dict.fromkeys(ids, tokenizer.end_of_text)
    _write_weights(store, commit, plan, folder)
    _write_json(folder / "config.json", {**plan.config, **end, "dtype": str(dtype)[6:]})
    _write_json(folder / "generation_config.json", {**end, "do_sample": False})
    if tokenizer is not None:
        (folder / "tokenizer.json").write_bytes(tokenizer.json)
        _write_json(folder / "tokenizer_config.json", _tokenizer_config(shape.max_sequence))
    (folder / "README.md").write_text(model_card(store, commit, shape))
    names = sorted(p.name for p in folder.iterdir())
    lines = [f"{sha256_file(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines))


def _tokenizer_config(max_sequence: int) -> dict[str, Any]:
    """No padding token: one equal to the end of text teaches a fine-tuned model never to stop."""
    end = "<|endoftext|>"
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "model_max_length": max_sequence,
        "clean_up_tokenization_spaces": False,
    }


def _write_weights(store: Store, commit: Commit, plan: FalconPlan, folder: Path) -> None:
    shards = _shards(plan)
    single = len(shards) == 1
    tensors = _tensors(store, commit, plan)
    weight_map: dict[str, str] = {}
    for number, entries in enumerate(shards, 1):
        name = WEIGHTS if single else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        with (folder / name).open("xb") as file:
            _write_shard(file, entries, tensors)
        weight_map |= {entry.name: name for entry in entries}
    if not single:
        size = sum(entry.size for entries in shards for entry in entries)
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        _write_json(folder / f"{WEIGHTS}.index.json", index)


def _shards(plan: FalconPlan) -> list[list[Entry]]:
    shards: list[list[Entry]] = [[]]
    held = 0
    for name, like in plan.like.items():
        entry = Entry(name, dtype_name(like.dtype), tuple(like.shape))
        if shards[-1] and held + entry.size > SHARD:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held += entry.size
    return shards


def _tensors(store: Store, commit: Commit, plan: FalconPlan) -> Iterator[tuple[str, Any]]:
    """Their tensors in the order of the plan, a block of the network in memory at a time."""
    for names in plan.groups():
        wanted = {MASTER + name: commit.tensors[MASTER + name].whole for name in names}
        group = load_slices(store, commit, wanted)
        ours = {name: group[MASTER + name] for name in names}
        yield from plan.convert(ours).items()


def _write_shard(file: BinaryIO, entries: list[Entry], tensors: Iterator[tuple[str, Any]]) -> None:
    head, _ = encode_header(entries, {"format": "pt"})
    file.write(head)
    for entry in entries:
        name, tensor = next(tensors)
        if (name, tuple(tensor.shape)) != (entry.name, entry.shape):
            raise CheckpointError(f"{name} came where {entry.name} was to be written")
        for piece in tensor_pieces(tensor):
            file.write(piece)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n")


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
