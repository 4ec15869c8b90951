"""Tokens: documents in; tokenizer, token shards, data plan and batches out."""

from __future__ import annotations

from .batches import Batch, Tokens, check_model_vocabulary, open_tokens, plan_digest
from .data_plan import DataPlan, Segment, Source, make_data_plan, read_data_plan
from .tokenizer import Tokenizer, load_tokenizer
from .tokenizer_stage import train_tokenizer
from .tokens_stage import write_tokens
from .trace import TraceRow

__all__ = [
    "Batch",
    "DataPlan",
    "Segment",
    "Source",
    "Tokenizer",
    "Tokens",
    "TraceRow",
    "check_model_vocabulary",
    "load_tokenizer",
    "make_data_plan",
    "open_tokens",
    "plan_digest",
    "read_data_plan",
    "train_tokenizer",
    "write_tokens",
]
