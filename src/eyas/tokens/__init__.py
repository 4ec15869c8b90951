"""Tokens: documents in; tokenizer, token shards, data plan and batches out."""

from __future__ import annotations

from .batches import Batch, Tokens, check_model_vocabulary, open_tokens, plan_digest
from .data_plan import (
    DataPlan,
    Segment,
    Source,
    check_recipe_plan,
    make_data_plan,
    read_data_plan,
)
from .healing import encode_joint
from .report import compare, held_out_sample, inspect
from .skip import skip_block, skip_samples
from .stream import Stream
from .tokenizer import Tokenizer, load_tokenizer
from .tokenizer_stage import tokenizer_size, train_tokenizer
from .tokens_stage import check_sources, needs_corpus, write_tokens
from .trace import TraceRow
from .verify import TokensReport, verify_tokens

__all__ = [
    "Batch",
    "DataPlan",
    "Segment",
    "Source",
    "Stream",
    "Tokenizer",
    "Tokens",
    "TokensReport",
    "TraceRow",
    "check_model_vocabulary",
    "check_recipe_plan",
    "check_sources",
    "compare",
    "encode_joint",
    "held_out_sample",
    "inspect",
    "load_tokenizer",
    "make_data_plan",
    "needs_corpus",
    "open_tokens",
    "plan_digest",
    "read_data_plan",
    "skip_block",
    "skip_samples",
    "tokenizer_size",
    "train_tokenizer",
    "verify_tokens",
    "write_tokens",
]
