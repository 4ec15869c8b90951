"""The comparison of an export: transformers on the folder against our model on the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eyas.model import Model
from eyas.store import Store, read_manifest
from eyas.tokens import Tokenizer

from .errors import CheckpointError

__all__ = ["Comparison", "compare"]

IDS = 256
PROMPT = 32
GREEDY = 16
SEED = 20240229


@dataclass(frozen=True)
class Comparison:
    """As in `ExportReport`."""

    max_logit_difference: float
    greedy_equal: bool
    compared_on: str


def compare(folder: Path, store: Store, model: Model, tokenizer: Tokenizer | None) -> Comparison:
    """Logits on up to 256 ids of held-out text of the store, else on seeded ids, and 16 greedy
    tokens after the first 32. Raises CheckpointError if the folder's tokenizer gives other ids."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    theirs = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, local_files_only=True
    ).eval()
    length = min(IDS, model.shape.max_sequence)
    text = _held_out_text(store) if tokenizer is not None else None
    if tokenizer is not None:
        sample = text or "A falcon, 1234 feathers. صقر\n\tتجربة"
        loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        theirs_ids = loaded(sample, add_special_tokens=False, split_special_tokens=True)
        if theirs_ids["input_ids"] != tokenizer.encode(sample):
            raise CheckpointError("AutoTokenizer gives other ids than ours; nothing was exported")
    if text is not None and tokenizer is not None:
        ids, what = tokenizer.encode(text)[:length], "held-out text"
    else:
        generator = torch.Generator().manual_seed(SEED)
        ids = torch.randint(model.shape.vocab_size, (length,), generator=generator).tolist()
        what = "seeded ids"
    ids_BT = torch.tensor([ids])
    with torch.inference_mode():
        difference = (theirs(ids_BT).logits - model.logits(ids_BT).cpu()).abs().max().item()
        prompt = ids[: min(PROMPT, max(1, length - GREEDY))]
        count = max(0, min(GREEDY, length - len(prompt)))
        equal = _greedy(lambda x: theirs(x).logits, prompt, count) == _greedy(
            model.logits, prompt, count
        )
    return Comparison(difference, equal, f"{len(ids)} tokens of {what}")


def _greedy(logits: Callable[[Any], torch.Tensor], prompt: list[int], count: int) -> list[int]:
    """`count` likeliest tokens, each from a full pass: no cache to differ in."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


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
