"""The comparison of an export: transformers on the folder against our network on the store.

Both are given the same ids and must give the same logits in float32. A model of any size is
compared: each network stands on the meta device, and a block's weights are read just before it runs
and dropped after, so memory holds one block in float32. Of the embedding only the rows of the ids
are read, and the output projection goes over the vocabulary a few MiB of rows at a time. Where the
whole model is small, transformers loads it its own way (`from_pretrained`) and 16 tokens are
decoded greedily; of a larger one the likeliest next token is compared, which needs no second pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eyas.model import Network
from eyas.shape import ModelShape, parameters
from eyas.store import Store, read_manifest
from eyas.tokens import Tokenizer

from .errors import CheckpointError
from .hf_file import read_rows, read_tensor
from .hf_folder import HEAD, read_weights
from .masters import Masters

__all__ = ["Comparison", "compare"]

WHOLE = 2**29
"""Bytes in float32 up to which a model is held whole."""

IDS = 256
PROMPT = 32
GREEDY = 16
SEED = 20240229

_ROWS = 8 * 2**20

Logits = Callable[[Tensor], Iterator[Tensor]]
"""ids B x T to logits B x T x V, in pieces along V."""


@dataclass(frozen=True)
class Comparison:
    """As in `ExportReport`."""

    max_logit_difference: float
    greedy_equal: bool
    logits_moved: float
    compared_on: str


def compare(
    folder: Path,
    store: Store,
    shape: ModelShape,
    masters: Masters,
    tokenizer: Tokenizer | None,
    dtypes: dict[str, torch.dtype],
    rounded: bool,
) -> Comparison:
    """Logits on up to 256 ids of held-out text of the store, else on seeded ids, and greedy tokens
    after the first 32. Ours are those of the weights as they were written, in their `dtypes`; where
    those are `rounded`, `logits_moved` says how far from the masters' logits they are. Raises
    CheckpointError if the folder's tokenizer gives other ids."""
    ids, what = _ids(folder, store, shape, tokenizer)
    small = 4 * parameters(shape) <= WHOLE
    theirs = _whole_theirs(folder) if small else _streamed_theirs(folder, shape)
    ours = _ours(shape, masters, dtypes, keep=small)
    ids_BT = torch.tensor([ids])
    with torch.inference_mode():
        difference, equal = _difference(theirs(ids_BT), ours(ids_BT))
        tokens = "the next token, block by block"
        if small:
            prompt = ids[: min(PROMPT, max(1, shape.max_sequence - GREEDY))]
            count = min(GREEDY, shape.max_sequence - len(prompt))
            equal = _greedy(theirs, prompt, count) == _greedy(ours, prompt, count)
            tokens = f"{count} greedy tokens"
        moved = 0.0
        if rounded:
            exact = _ours(shape, masters, dict.fromkeys(dtypes, torch.float32), keep=False)
            moved, _ = _difference(exact(ids_BT), ours(ids_BT))
    return Comparison(difference, equal, moved, f"{len(ids)} tokens of {what} and {tokens}")


def _ids(
    folder: Path, store: Store, shape: ModelShape, tokenizer: Tokenizer | None
) -> tuple[list[int], str]:
    """What to ask both, and what it is."""
    length = min(IDS, shape.max_sequence)
    text = None
    if tokenizer is not None:
        text = _held_out_text(store)
        _check_tokenizer(folder, tokenizer, text or "A falcon, 1234 feathers. صقر\n\tتجربة")
    if text is not None and tokenizer is not None:
        return tokenizer.encode(text)[:length], "held-out text"
    generator = torch.Generator().manual_seed(SEED)
    ids: list[int] = torch.randint(shape.vocab_size, (length,), generator=generator).tolist()
    return ids, "seeded ids"


def _check_tokenizer(folder: Path, tokenizer: Tokenizer, sample: str) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    found = loaded(sample, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    if found != tokenizer.encode(sample):
        raise CheckpointError("AutoTokenizer gives other ids than ours; nothing was exported")


def _held_out_text(store: Store) -> str | None:
    """The first held-out documents, about 16 K characters, or None."""
    from eyas.corpus import read_documents

    manifest = read_manifest(store, "corpus")
    if manifest is None:
        return None
    text = ""
    for table in read_documents(store, manifest, split="validation", columns=["text"]):
        for value in table.column("text").to_pylist():
            text += value + "\n"
            if len(text) > 2**14:
                return text[: 2**14]
    return text or None


def _difference(some: Iterator[Tensor], others: Iterator[Tensor]) -> tuple[float, bool]:
    """The largest absolute one, nan if there is any; and whether the likeliest next token is the
    same."""
    found, best = [], [_Likeliest(), _Likeliest()]
    for a, b in _aligned(some, others):
        found.append((a - b).abs().max())
        best[0].see(a)
        best[1].see(b)
    return float(torch.stack(found).max()), best[0].token == best[1].token


class _Likeliest:
    """The likeliest token after the last position, of logits 1 x T x V in pieces along V."""

    def __init__(self) -> None:
        self.token = self._seen = 0
        self._value = -math.inf

    def see(self, piece: Tensor) -> None:
        value, index = piece[0, -1].max(dim=0)
        if value > self._value:
            self._value, self.token = float(value), self._seen + int(index)
        self._seen += piece.shape[-1]


def _aligned(some: Iterator[Tensor], others: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Two series of pieces along the vocabulary, cut where either is."""
    a = b = torch.empty(0)
    while True:
        a = a if a.numel() else next(some, a)
        b = b if b.numel() else next(others, b)
        size = min(a.shape[-1], b.shape[-1])
        if not size:
            if a.shape[-1] != b.shape[-1]:
                raise CheckpointError("transformers gives logits of another number than Eyas")
            return
        yield a[..., :size], b[..., :size]
        a, b = a[..., size:], b[..., size:]


def _greedy(logits: Logits, prompt: list[int], count: int) -> list[int]:
    """`count` likeliest tokens, each from a full pass: no cache to differ in."""
    ids = list(prompt)
    for _ in range(count):
        best = _Likeliest()
        for piece in logits(torch.tensor([ids])):
            best.see(piece)
        ids.append(best.token)
    return ids[len(prompt) :]


def _ours(
    shape: ModelShape, masters: Masters, dtypes: dict[str, torch.dtype], keep: bool
) -> Logits:
    def whole(name: str) -> Tensor:
        tensor = masters.whole(name)
        if dtypes[name] != torch.float32:
            for part in tensor.split(max(1, _ROWS // tensor[0].numel())):
                part.copy_(part.to(dtypes[name]))
        return tensor

    def rows(name: str, first: int, last: int) -> Tensor:
        return masters.rows(name, first, last).to(dtypes[name]).float()

    with torch.device("meta"):
        network = Network(shape).eval()
    head = "embedding.weight" if shape.tied else "head.weight"
    _stream(network, network.embedding, whole, rows, skip={"head.weight"}, keep=keep)

    def logits(ids_BT: Tensor) -> Iterator[Tensor]:
        yield from _project(network.features(ids_BT), shape.vocab_size, head, rows)

    return logits


def _whole_theirs(folder: Path) -> Logits:
    from transformers import AutoModelForCausalLM

    _quiet()
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, local_files_only=True
    ).eval()

    def logits(ids_BT: Tensor) -> Iterator[Tensor]:
        yield model(ids_BT, use_cache=False).logits

    return logits


def _streamed_theirs(folder: Path, shape: ModelShape) -> Logits:
    """Their model of the folder's configuration, with the weights of its files a block at a time.
    Raises CheckpointError for a weight that their model does not have, or that is not there."""
    from transformers import AutoConfig, AutoModelForCausalLM

    _quiet()
    weights = read_weights(folder)
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    with _EmptyOnMeta():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    names = {name for name, _ in model.named_parameters()} | ({HEAD} & weights.keys())
    if names - {HEAD} != weights.keys() - {HEAD}:
        odd = sorted(names ^ weights.keys())[0]
        raise CheckpointError(f"transformers and the exported files disagree about {odd}")
    embedding = model.get_input_embeddings()
    embedded = next(n for n, m in model.named_modules() if m is embedding) + ".weight"
    head = HEAD if HEAD in weights else embedded
    model.set_output_embeddings(nn.Identity())

    def whole(name: str) -> Tensor:
        return read_tensor(weights[name], torch.float32)

    def rows(name: str, first: int, last: int) -> Tensor:
        return read_rows(weights[name], first, last, torch.float32)

    _stream(model, embedding, whole, rows, skip={HEAD}, keep=False)

    def logits(ids_BT: Tensor) -> Iterator[Tensor]:
        x_BTD = model(ids_BT, use_cache=False).logits  # what the identity gives back
        yield from _project(x_BTD, shape.vocab_size, head, rows)

    return logits


class _EmptyOnMeta(TorchFunctionMode):
    """Parameters, which modules make with `torch.empty`, cost nothing; buffers, which they compute
    (rotary frequencies, masks), are real."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def _quiet() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _stream(
    network: nn.Module,
    embedding: nn.Module,
    whole: Callable[[str], Tensor],
    rows: Callable[[str, int, int], Tensor],
    skip: set[str],
    keep: bool,
) -> None:
    """Give a network on the meta device its weights when they are needed: each block of its list of
    blocks before it runs, dropped after it unless `keep`; of the embedding the rows of the ids;
    what is small (last norm, learned positions) now and for good."""
    blocks = next(m for m in network.modules() if isinstance(m, nn.ModuleList))
    named = {id(module): name for name, module in network.named_modules()}
    inside = {id(p) for p in blocks.parameters()} | {id(p) for p in embedding.parameters()}
    for name, parameter in list(network.named_parameters()):
        if id(parameter) not in inside and name not in skip:
            owner, _, leaf = name.rpartition(".")
            _assign(network.get_submodule(owner), {leaf: whole(name)})

    def give(block: nn.Module, _: Any) -> None:
        if next(block.parameters()).is_meta:
            prefix = named[id(block)]
            _assign(block, {n: whole(f"{prefix}.{n}") for n, _ in block.named_parameters()})

    def drop(block: nn.Module, *_: Any) -> None:
        if not keep:
            empty = {n: torch.empty_like(p, device="meta") for n, p in block.named_parameters()}
            _assign(block, empty)

    for block in blocks:
        block.register_forward_pre_hook(give)
        block.register_forward_hook(drop)

    def look_up(module: nn.Module, args: Any) -> Any:
        ids, places = args[0].unique(return_inverse=True)
        name = f"{named[id(module)]}.weight"
        _assign(module, {"weight": torch.cat(list(_picked(ids, name, width, rows)))})
        # One of the whole vocabulary, which only masks gradients.
        setattr(module, "padding_idx", None)  # noqa: B010 - mypy takes it for an int
        return (places, *args[1:])

    width = next(embedding.parameters()).shape[1]
    embedding.register_forward_pre_hook(look_up)


def _picked(
    ids_N: Tensor, name: str, width: int, rows: Callable[[str, int, int], Tensor]
) -> Iterator[Tensor]:
    """The rows of ascending ids; those that lie within a few MiB of each other are read at once."""
    window_N = ids_N // max(1, _ROWS // (4 * width))
    for window in window_N.unique():
        near = ids_N[window_N == window]
        first, last = int(near[0]), int(near[-1])
        yield rows(name, first, last + 1)[near - first]


def _assign(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))


def _project(
    x_BTD: Tensor, vocab_size: int, head: str, rows: Callable[[str, int, int], Tensor]
) -> Iterator[Tensor]:
    step = max(1, _ROWS // (4 * x_BTD.shape[-1]))
    for first in range(0, vocab_size, step):
        yield F.linear(x_BTD, rows(head, first, min(vocab_size, first + step)))
