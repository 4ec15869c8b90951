"""A Hugging Face folder, read: configuration, weights block by block, tokenizer.

Only safetensors weights are read (one file, or sharded with an index); `.bin` files are pickles,
which run code when loaded, and are refused. `eyas.model` translates whole state dicts; a block at a
time is translated by giving it `meta` tensors, which have a shape and no data, for everything else.
So every tensor is checked before a byte is read, and memory holds one block. Where the folder has a
`SHA256SUMS`, as our exports do, it is verified first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from eyas.model import from_falcon, to_falcon
from eyas.recipe import EyasError, UsageError
from eyas.shape import ModelShape, parameter_table
from eyas.store import Corrupt
from eyas.tokens import Tokenizer

from .errors import CheckpointError
from .payload import dtype_of

__all__ = [
    "SUMS",
    "WEIGHTS",
    "FalconFolder",
    "FalconPlan",
    "is_falcon_folder",
    "open_falcon_folder",
    "plan_falcon",
    "sha256_file",
]

SUMS = "SHA256SUMS"
WEIGHTS = "model.safetensors"
_BLOCK = re.compile(r"(?:transformer\.h|blocks)\.(\d+)\.")


@dataclass(frozen=True, eq=False)
class FalconFolder:
    """`config` as it stands there, `files` by tensor name, `like` a meta tensor of each."""

    path: Path
    config: Mapping[str, Any]
    files: Mapping[str, Path]
    like: Mapping[str, torch.Tensor]
    shape: ModelShape

    def groups(self) -> Iterator[dict[str, torch.Tensor]]:
        """Our tensors, a block of the network at a time, in the dtype of the files."""
        for names in _grouped(self.files).values():
            real = {name: self._read(name) for name in names}
            _, ours = from_falcon(self.config, _without_tied_head(self.config, self.like) | real)
            yield {n: t for n, t in ours.items() if not t.is_meta}

    def tokenizer(self) -> Tokenizer | None:
        """Its `tokenizer.json`, None if it has none. Raises CheckpointError."""
        path = self.path / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            tokenizer = Tokenizer(path.read_bytes())
        except EyasError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if tokenizer.vocab_size > self.shape.vocab_size:
            raise CheckpointError(
                f"{path} has {tokenizer.vocab_size} items, config.json says {self.shape.vocab_size}"
            )
        return tokenizer

    def _read(self, name: str) -> torch.Tensor:
        with safe_open(self.files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
        return tensor


@dataclass(frozen=True, eq=False)
class FalconPlan:
    """What a network becomes: `config`, and `like`, a meta tensor for each of theirs, block by
    block in the order in which `convert` gives them."""

    shape: ModelShape
    config: Mapping[str, Any]
    ours: Mapping[str, torch.Tensor]
    like: Mapping[str, torch.Tensor]

    def groups(self) -> list[list[str]]:
        """Our names, a block of the network at a time."""
        return list(_grouped(self.ours).values())

    def convert(self, group: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Their tensors of one of the groups."""
        _, theirs = to_falcon(self.shape, {**self.ours, **group})
        return {name: theirs[name] for name in self.like if not theirs[name].is_meta}


def is_falcon_folder(ref: str | Path) -> bool:
    """Whether a reference means a Hugging Face folder."""
    return (Path(ref) / "config.json").is_file()


def open_falcon_folder(folder: str | Path) -> FalconFolder:
    """Read configuration and headers, check both. Raises UsageError naming an unknown switch or a
    tensor that is missing, unknown or of a wrong shape; CheckpointError for files that cannot be
    read; Corrupt for one that `SHA256SUMS` says otherwise of."""
    path = Path(folder)
    if not is_falcon_folder(path):
        raise UsageError(f"{path} is no Hugging Face folder: it has no config.json")
    _check_sums(path)
    config = _read_json(path / "config.json")
    files: dict[str, Path] = {}
    like: dict[str, torch.Tensor] = {}
    for file in _weight_files(path):
        for name, tensor in _headers(file).items():
            if name in files:
                raise CheckpointError(f"{name} is in {files[name].name} and in {file.name}")
            if not tensor.is_floating_point():
                raise UsageError(f"{name} is {tensor.dtype} in {file}; weights are floating point")
            files[name], like[name] = file, tensor
    _check_index(path, files)
    shape, _ = from_falcon(config, _without_tied_head(config, like))
    return FalconFolder(path, config, files, like, shape)


def plan_falcon(shape: ModelShape, dtype: torch.dtype) -> FalconPlan:
    """How tensors of this shape, all of `dtype`, become a Falcon checkpoint."""
    ours = {
        name: torch.empty(size, dtype=dtype, device="meta")
        for name, size in parameter_table(shape).items()
    }
    config, theirs = to_falcon(shape, ours)
    ordered = [name for names in _grouped(theirs).values() for name in names]
    return FalconPlan(shape, config, ours, {name: theirs[name] for name in ordered})


def sha256_file(path: Path) -> str:
    """Hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _grouped(names: Mapping[str, Any]) -> dict[int, list[str]]:
    """Names by block, those outside of any block first."""
    groups: dict[int, list[str]] = {-1: []}
    for name in names:
        match = _BLOCK.match(name)
        groups.setdefault(int(match[1]) if match else -1, []).append(name)
    return dict(sorted(groups.items()))


def _without_tied_head(
    config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """A head beside a tied embedding is compared with it, which takes data: only with its group."""
    tied = config.get("tie_word_embeddings", True)
    return {n: t for n, t in tensors.items() if not (tied and n == "lm_head.weight")}


def _weight_files(path: Path) -> list[Path]:
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    index = path / f"{WEIGHTS}.index.json"
    if index.is_file():
        names = sorted(set(_weight_map(index).values()))
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(f"{index} names {name}, which is not a file beside it")
            if not (path / name).is_file():
                raise CheckpointError(f"{path / name} is missing, {index.name} names it")
        return [path / name for name in names]
    pickles = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in path.glob(kind))
    if pickles:
        raise UsageError(
            f"{path} has its weights in {pickles[0]}, a pickle, which can run code when it is "
            "loaded, so Eyas does not; save it as safetensors "
            "(model.save_pretrained in transformers does) and try again"
        )
    raise UsageError(f"{path} has no {WEIGHTS} and no {index.name}")


def _headers(file: Path) -> dict[str, torch.Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: torch.empty(
                    tuple(part.get_shape()), dtype=dtype_of(part.get_dtype()), device="meta"
                )
                for name, part in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read as safetensors: {error}") from error


def _check_index(path: Path, files: Mapping[str, Path]) -> None:
    index = path / f"{WEIGHTS}.index.json"
    if (path / WEIGHTS).is_file() or not index.is_file():
        return
    for name, file in _weight_map(index).items():
        if name not in files or files[name].name != file:
            raise CheckpointError(f"{path / file} holds no {name}, {index.name} says it does")


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name to file name."""
    table = _read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names")
    return table


def _check_sums(path: Path) -> None:
    sums = path / SUMS
    if not sums.is_file():
        return
    for line in sums.read_text().splitlines():
        digest, _, name = line.partition("  ")
        if Path(name).name != name or not (path / name).is_file():
            raise Corrupt(f"{path / name} is missing, {SUMS} names it")
        if sha256_file(path / name) != digest:
            raise Corrupt(f"{path / name} is damaged: its SHA-256 is not what {SUMS} says")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
