"""A Hugging Face folder, read: configuration, weights a tensor at a time, tokenizer, licences.

Only safetensors weights are read (one file, or sharded with an index); `.bin` files are pickles,
which run code when loaded, and are refused. Names, shapes and switches are all checked before a
value is read. Where the folder has a `SHA256SUMS`, as our exports do, it is verified first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eyas.recipe import EyasError, UsageError
from eyas.shape import ModelShape
from eyas.store import Corrupt
from eyas.tokens import Tokenizer
from eyas.work import progress

from .errors import CheckpointError
from .hf_file import StoredTensor, read_header, read_tensor, value_pieces
from .hf_links import Link, Links, link_import

__all__ = [
    "HEAD",
    "SUMS",
    "WEIGHTS",
    "HFFolder",
    "is_hf_folder",
    "open_hf_folder",
    "read_weights",
    "sha256_file",
]

SUMS = "SHA256SUMS"
WEIGHTS = "model.safetensors"
HEAD = "lm_head.weight"

_BLOCK = 2**20
_LICENCES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "USE_POLICY")
_SUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.*)")  # as sha256sum writes it, -b too
_LONGEST_LICENCE = 256 * 1024
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
_TOKENIZER_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token", "chat_template")
_SLOW = ("tokenizer.model", "vocab.json", "merges.txt", "spiece.model")

# Cases on which a tokenizer that is not byte-level BPE, or normalises, loses something.
_HARD = " a  falcon's\n\n\tnest 1234 İSTANBUL ﬁ Å é صقرٌ 雏鹰 𓅃 \u200d\ufeff "


@dataclass(frozen=True, eq=False)
class HFFolder:
    """`config` as it stands there, `weights` by their names, `links` to ours."""

    path: Path
    config: Mapping[str, Any]
    weights: Mapping[str, StoredTensor]
    links: Links

    @property
    def shape(self) -> ModelShape:
        return self.links.shape

    @property
    def size(self) -> int:
        """Bytes of weights that are read."""
        return sum(self.weights[link.theirs].size for link in self.links.links)

    def dtypes(self) -> dict[str, torch.dtype]:
        """Of our tensors, as the files have them."""
        return {
            name: self.weights[link.theirs].dtype for link in self.links.links for name in link.ours
        }

    def read(self, link: Link) -> dict[str, torch.Tensor]:
        """Ours of one link, float32."""
        stored = self.weights[link.theirs]
        if link.renamed:
            return {link.ours[0]: read_tensor(stored, torch.float32)}
        ours = self.links.to_ours(link, read_tensor(stored))
        return {name: ours.pop(name).float() for name in link.ours}

    def values(self, link: Link) -> Iterator[torch.Tensor]:
        """The values of ours of one link, one tensor after another, in pieces as they are stored.
        Of a renamed tensor memory holds a piece, of a cut one all of it."""
        stored = self.weights[link.theirs]
        if link.renamed:
            yield from value_pieces(stored)
            return
        ours = self.links.to_ours(link, read_tensor(stored))
        for name in link.ours:
            flat = ours.pop(name).reshape(-1)
            for at in range(0, flat.numel(), _BLOCK):
                yield flat[at : at + _BLOCK]

    def tokenizer(self) -> tuple[Tokenizer | None, str]:
        """Its `tokenizer.json`, or None and why it is not taken ("" where there is none at all): a
        tokenizer of ours is byte-level BPE, gives every text back and has an end of text. Raises
        CheckpointError for one that is larger than the vocabulary."""
        path = self.path / "tokenizer.json"
        if not path.is_file():
            slow = [name for name in _SLOW if (self.path / name).is_file()]
            why = f"{slow[0]} is of the slow kind, without a tokenizer.json" if slow else ""
            return None, why
        try:
            tokenizer = Tokenizer(path.read_bytes())
            back = tokenizer.decode(tokenizer.encode(_HARD))
        except EyasError as error:
            return None, f"tokenizer.json: {error}"
        if back != _HARD:
            return None, "tokenizer.json does not give a text back as it was (no byte-level BPE)"
        if tokenizer.vocab_size > self.shape.vocab_size:
            raise CheckpointError(
                f"{path} has {tokenizer.vocab_size} items, config.json says {self.shape.vocab_size}"
            )
        return tokenizer, ""

    def special_ids(self) -> dict[str, Any]:
        """Beginning, end and padding as config.json and generation_config.json say."""
        path = self.path / "generation_config.json"
        said = {**self.config, **(_read_json(path) if path.is_file() else {})}
        ids = {name: said[name] for name in _SPECIAL if said.get(name) is not None}
        for name, value in ids.items():
            listed = value if isinstance(value, list) and name == "eos_token_id" else [value]
            if not listed or not all(type(item) is int for item in listed):
                raise UsageError(f"{name} is {value!r} in {self.path}; a token id is meant")
        return ids

    def tokenizer_config(self) -> dict[str, Any]:
        """What tokenizer_config.json says of special tokens and the chat template."""
        path = self.path / "tokenizer_config.json"
        said = _read_json(path) if path.is_file() else {}
        return {name: said[name] for name in _TOKENIZER_KEYS if said.get(name) is not None}

    def licences(self) -> dict[str, str]:
        """Name to text of its licence files. Raises CheckpointError for one too long to be one."""
        found = {}
        for path in sorted(self.path.iterdir()):
            if not (path.name.upper().startswith(_LICENCES) and path.is_file()):
                continue
            if path.stat().st_size > _LONGEST_LICENCE:
                raise CheckpointError(f"{path} is over {_LONGEST_LICENCE} bytes; is it a licence?")
            found[path.name] = path.read_text(encoding="utf-8", errors="replace")
        return found


def is_hf_folder(ref: str | Path) -> bool:
    """Whether a reference means a Hugging Face folder."""
    return (Path(ref) / "config.json").is_file()


def open_hf_folder(folder: str | Path) -> HFFolder:
    """Read configuration and headers, check both. Raises UsageError naming an unknown switch or a
    tensor that is missing, unknown or of a wrong shape; CheckpointError for files that cannot be
    read; Corrupt for one that `SHA256SUMS` says otherwise of."""
    path = Path(folder)
    if not is_hf_folder(path):
        raise UsageError(f"{path} is no Hugging Face folder: it has no config.json")
    _check_sums(path)
    config = _read_json(path / "config.json")
    weights = read_weights(path)
    links = link_import(config, {name: stored.like() for name, stored in weights.items()})
    _check_dtypes(weights, links)
    _check_tied_head(weights, links)
    return HFFolder(path, config, weights, links)


def read_weights(path: Path) -> dict[str, StoredTensor]:
    """The tensors of all weight files, by name. Raises as `open_hf_folder`."""
    weights: dict[str, StoredTensor] = {}
    for file in _weight_files(path):
        for name, stored in read_header(file).items():
            if name in weights:
                raise CheckpointError(f"{name} is in {weights[name].file.name} and in {file.name}")
            weights[name] = stored
    _check_index(path, weights)
    return weights


def sha256_file(path: Path, advance: Callable[[int], object] = lambda _: None) -> str:
    """Hex."""
    digest, block = hashlib.sha256(), bytearray(_BLOCK)
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(block):
            digest.update(memoryview(block)[:got])
            advance(got)
    return digest.hexdigest()


def _check_dtypes(weights: Mapping[str, StoredTensor], links: Links) -> None:
    """Of what is read: older files also hold masks and such, which nobody needs."""
    for link in links.links:
        dtype = weights[link.theirs].dtype
        if not dtype.is_floating_point or dtype == torch.float64:
            raise UsageError(
                f"{link.theirs} is {dtype} in {weights[link.theirs].file}; weights are floating "
                "point of at most 32 bits, which float32 masters hold without loss"
            )


def _check_tied_head(weights: Mapping[str, StoredTensor], links: Links) -> None:
    """A head beside the embedding that it is tied to holds the same values, or which is meant?"""
    used = {link.theirs for link in links.links}
    if HEAD not in weights or HEAD in used:
        return
    name = next(link.theirs for link in links.links if link.ours == ("embedding.weight",))
    pieces = zip(value_pieces(weights[HEAD]), value_pieces(weights[name]), strict=True)
    if not all(torch.equal(head.float(), row.float()) for head, row in pieces):
        raise UsageError(
            f"{HEAD} differs from {name} although tie_word_embeddings is true; set it to false in "
            "config.json if the head is its own"
        )


def _weight_files(path: Path) -> list[Path]:
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    index = path / f"{WEIGHTS}.index.json"
    if index.is_file():
        names = sorted(set(_weight_map(index).values()))
        for name in names:
            _check_plain(name, str(index))
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


def _check_index(path: Path, weights: Mapping[str, StoredTensor]) -> None:
    index = path / f"{WEIGHTS}.index.json"
    if (path / WEIGHTS).is_file() or not index.is_file():
        return
    for name, file in _weight_map(index).items():
        if name not in weights or weights[name].file.name != file:
            raise CheckpointError(f"{path / file} holds no {name}, {index.name} says it does")


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name to file name."""
    table = _read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names")
    return table


def _check_plain(name: str, who: str) -> None:
    """Names of other folders, and tricks like `..`, are not followed."""
    if Path(name).name != name or "\0" in name or "\\" in name:
        raise CheckpointError(f"{who} names {name!r}, which is not a file beside it")


def _check_sums(path: Path) -> None:
    sums = path / SUMS
    if not sums.is_file():
        return
    rows = []
    for number, line in enumerate(sums.read_text("utf-8", "replace").splitlines(), 1):
        row = _SUM.fullmatch(line)
        if row is None and line.strip():
            raise Corrupt(f"{sums}, line {number}, is no SHA-256 and a file name")
        if row is not None:
            rows.append((row[1].lower(), row[2]))
    for _, name in rows:
        _check_plain(name, str(sums))
        if not (path / name).is_file():
            raise Corrupt(f"{path / name} is missing, {SUMS} names it")
    size = sum((path / name).stat().st_size for _, name in rows)
    with progress("checksums", size, unit="bytes") as advance:
        for digest, name in rows:
            if sha256_file(path / name, advance) != digest:
                raise Corrupt(f"{path / name} is damaged: its SHA-256 is not what {SUMS} says")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
