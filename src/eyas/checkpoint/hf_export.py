"""Export: a checkpoint out as a Hugging Face folder, compared with ours before it stands there.

The folder is a release: weights, configuration, tokenizer, licence, model card, checksums and an
example that deploys it. Weights are read, converted and written a few MiB at a time; only a tensor
that is put together from several of ours is held whole. Everything goes into a temporary folder
beside the target; transformers on it must give our logits; only then it is renamed, so what stands
at the target is whole and checked. A crash leaves a folder `.tmp-...` that nothing believes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

import torch

from eyas.recipe import UsageError
from eyas.shape import ModelShape, parameter_table
from eyas.store import Store
from eyas.tokens import Tokenizer
from eyas.work import progress

from .commit import Commit, read_commit, resolve
from .errors import CheckpointError
from .hf_check import Comparison, compare
from .hf_folder import SUMS, WEIGHTS, is_hf_folder, sha256_file
from .hf_links import Link, Links, link_export
from .licence import Licence, find_licence
from .masters import Masters
from .model_card import Release, model_card
from .newest import newest_whole
from .open_model import find_tokenizer, shape_of
from .payload import Entry, dtype_name, dtype_of, encode_header, tensor_pieces

__all__ = ["DTYPES", "ExportReport", "export_hf"]

SHARD = 5 * 10**9
LARGEST_DIFFERENCE = 1e-3
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class ExportReport:
    """What was written: `files` by name, `bytes` in all. `max_logit_difference` is the largest
    absolute one between transformers on the folder and us on the same weights, on the same ids in
    float32; `greedy_equal` whether both continue a prompt with the same tokens; `compared_on` says
    on what. `dtype` is that of the weights; `rounded` how many of them it changed, and
    `logits_moved` by how much at most that moved a logit. `licence`: SPDX, "other", "" for none."""

    folder: Path
    files: tuple[str, ...]
    bytes: int
    max_logit_difference: float
    greedy_equal: bool
    compared_on: str
    dtype: str
    rounded: int
    logits_moved: float
    licence: str
    tokenizer: bool


def export_hf(
    ref: str, folder: str | Path, dtype: str = "auto", licence: str | None = None
) -> ExportReport:
    """Write `STORE[@...]` as a new Hugging Face folder that transformers loads. "latest" is the
    newest whole checkpoint.

    `dtype` "auto" is what the files of an import had, if the checkpoint is one, else float32.
    `licence`: a file, or an SPDX id; by default what the recipe or the import says.

    Raises UsageError if the folder exists or no family of Hugging Face has the shape,
    CheckpointError if transformers does not give what we give (logits within 1e-3) or a weight does
    not fit in the dtype; then there is no folder.
    """
    target = Path(folder).absolute()
    if is_hf_folder(ref):
        raise UsageError(f"{ref} is a Hugging Face folder already; export wants STORE[@STEP]")
    if os.path.lexists(target):
        raise UsageError(f"{target} exists; name a folder that does not")
    if dtype not in DTYPES:
        raise UsageError(f'dtype "{dtype}" is not one of {", ".join(DTYPES)}')
    store, selector = resolve(ref)
    commit = newest_whole(store) if selector == "latest" else read_commit(store, selector)
    if commit is None:
        raise CheckpointError(f"{store.url} holds no checkpoint")
    shape = shape_of(commit)
    links = link_export(shape, _dtypes(shape, commit, dtype))
    stated = find_licence(store, commit, licence)
    temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(4)}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be made: {error.strerror}") from error
    try:
        done = _write(store, commit, links, stated, temporary)
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
        max_logit_difference=done.compared.max_logit_difference,
        greedy_equal=done.compared.greedy_equal,
        compared_on=done.compared.compared_on,
        dtype=done.dtype,
        rounded=done.rounded,
        logits_moved=done.compared.logits_moved,
        licence=stated.id,
        tokenizer=done.tokenizer,
    )


@dataclass(frozen=True)
class _Done:
    compared: Comparison
    dtype: str
    rounded: int
    tokenizer: bool


def _dtypes(shape: ModelShape, commit: Commit, asked: str) -> dict[str, torch.dtype]:
    """Of each of our tensors in the files."""
    names = list(parameter_table(shape))
    if asked != "auto":
        return dict.fromkeys(names, getattr(torch, asked))
    said = commit.facts.get("dtypes")
    if said is None:
        return dict.fromkeys(names, torch.float32)
    return {name: dtype_of(said["others"].get(name, said["default"])) for name in names}


def _write(store: Store, commit: Commit, links: Links, licence: Licence, folder: Path) -> _Done:
    """Everything but the rename."""
    shape, masters = links.shape, Masters(store, commit)
    tokenizer = find_tokenizer(store, commit)
    dtypes = {name: tensor.dtype for name, tensor in links.ours.items()}
    weights = _Weights(folder, links, masters)
    weights.write()
    main = Counter(dtypes.values()).most_common(1)[0][0]
    dtype = str(main).removeprefix("torch.")
    _write_configs(folder, commit, links, tokenizer, dtype)
    found = compare(folder, store, shape, masters, tokenizer, dtypes, weights.rounded > 0)
    if not found.max_logit_difference <= LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"transformers gives other logits for {commit.key} than Eyas: the largest "
            f"difference is {found.max_logit_difference:.3g}, {LARGEST_DIFFERENCE:g} is "
            "allowed; nothing was exported"
        )
    for name, text in licence.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    example = resources.files("eyas") / "presets" / "release" / "deploy_sagemaker.py"
    (folder / "deploy_sagemaker.py").write_bytes(example.read_bytes())
    release = Release(
        dtype=dtype,
        rounded=weights.rounded,
        logits_moved=found.logits_moved,
        licence=licence,
        tokenizer=tokenizer,
        compared=f"{found.max_logit_difference:.1e} on {found.compared_on}",
    )
    (folder / "README.md").write_text(model_card(store, commit, shape, release), encoding="utf-8")
    _write_sums(folder, weights.sums)
    return _Done(found, dtype, weights.rounded, tokenizer is not None)


@dataclass
class _Weights:
    """The writing of the weight files; `sums` of them by name and how many weights were `rounded`
    are known after it."""

    folder: Path
    links: Links
    masters: Masters
    rounded: int = 0
    sums: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """All files, and the index where there is more than one. Raises CheckpointError."""
        shards = self._shards()
        size = sum(entry.size for shard in shards for _, entry in shard)
        with progress("export", size, unit="bytes") as advance:
            for number, shard in enumerate(shards, 1):
                name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
                name = WEIGHTS if len(shards) == 1 else name
                with (self.folder / name).open("xb") as file:
                    self.sums[name] = self._write_shard(file, shard, advance)
        if len(shards) > 1:
            names = zip(self.sums, shards, strict=True)
            weight_map = {entry.name: name for name, shard in names for _, entry in shard}
            index = {"metadata": {"total_size": size}, "weight_map": weight_map}
            _write_json(self.folder / f"{WEIGHTS}.index.json", index)

    def _shards(self) -> list[list[tuple[Link, Entry]]]:
        shards: list[list[tuple[Link, Entry]]] = [[]]
        held = 0
        for link in self.links.links:
            like = self.links.theirs[link.theirs]
            entry = Entry(link.theirs, dtype_name(like.dtype), tuple(like.shape))
            if shards[-1] and held + entry.size > SHARD:
                shards.append([])
                held = 0
            shards[-1].append((link, entry))
            held += entry.size
        return shards

    def _write_shard(
        self,
        file: BinaryIO,
        shard: list[tuple[Link, Entry]],
        advance: Callable[[float], None],
    ) -> str:
        """SHA-256 of what was written."""
        head, _ = encode_header([entry for _, entry in shard], {"format": "pt"})
        digest = hashlib.sha256(head)
        file.write(head)
        for link, entry in shard:
            written = 0
            for piece in self._bytes(link):
                file.write(piece)
                digest.update(piece)
                advance(len(piece))
                written += len(piece)
            if written != entry.size:
                raise CheckpointError(f"{entry.name} came with {written} of {entry.size} bytes")
        return digest.hexdigest()

    def _bytes(self, link: Link) -> Iterator[memoryview]:
        """Of one of theirs."""
        if link.renamed:
            for part in self.masters.pieces(link.ours[0]):
                yield from tensor_pieces(self._cast(link.ours[0], part))
            return
        ours = {name: self._whole(name) for name in link.ours}
        theirs = self.links.to_theirs(link, ours)
        ours.clear()
        yield from tensor_pieces(theirs)

    def _whole(self, name: str) -> torch.Tensor:
        """One of ours in its dtype."""
        result = torch.empty(self.masters.shape(name), dtype=self.links.ours[name].dtype)
        first = 0
        for part in self.masters.pieces(name):
            result[first : first + len(part)] = self._cast(name, part)
            first += len(part)
        return result

    def _cast(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """To its dtype, counting what that rounds. Raises CheckpointError for what is too large."""
        dtype = self.links.ours[name].dtype
        if dtype == part.dtype:
            return part
        cast = torch.empty_like(part, dtype=dtype)
        for values, target in zip(part.split(_STEP), cast.split(_STEP), strict=True):
            target.copy_(values)
            back = target.float()
            if not torch.equal(back.isfinite(), values.isfinite()):
                raise CheckpointError(f"{name} has values that do not fit in {dtype}")
            self.rounded += int((back != values).logical_and_(values.isfinite()).sum())
        return cast


_STEP = 256
"""Rows that are cast at a time."""


def _write_configs(
    folder: Path, commit: Commit, links: Links, tokenizer: Tokenizer | None, dtype: str
) -> None:
    ids = dict(commit.facts.get("special_ids") or {})
    if tokenizer is not None:  # what an import said stays: it may end at several ids
        ids = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.end_of_text) | ids
    _write_json(folder / "config.json", {**links.config, **ids, "dtype": dtype})
    _write_json(folder / "generation_config.json", {**ids, "do_sample": False})
    if tokenizer is not None:
        (folder / "tokenizer.json").write_bytes(tokenizer.json)
        config = _tokenizer_config(links.shape.max_sequence)
        config |= commit.facts.get("tokenizer_config") or {}
        _write_json(folder / "tokenizer_config.json", config)


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


def _write_sums(folder: Path, known: Mapping[str, str]) -> None:
    names = sorted(p.name for p in folder.iterdir())
    lines = [f"{known.get(name) or sha256_file(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


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
