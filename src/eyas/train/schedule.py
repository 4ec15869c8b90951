"""The learning rate as a pure function of tokens, so that it is the same after any resume and under
any batch size."""

from __future__ import annotations

import math

from eyas.recipe import Train

__all__ = ["learning_rate"]


def learning_rate(tokens: int, keys: Train) -> float:
    """The rate of the step that ends at `tokens` of `keys.tokens`: linear warm-up over
    `warmup_tokens`, then a cosine to `lr_min` at the end, or constant."""
    if tokens < keys.warmup_tokens:
        return keys.lr * tokens / keys.warmup_tokens
    if keys.schedule == "constant":
        return keys.lr
    span = max(1, keys.tokens - keys.warmup_tokens)
    done = min(1.0, (tokens - keys.warmup_tokens) / span)
    return keys.lr_min + (keys.lr - keys.lr_min) * (1 + math.cos(math.pi * done)) / 2
