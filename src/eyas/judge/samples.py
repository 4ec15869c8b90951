"""Samples to look at, without pretence: what the model says, greedy and once at temperature 0.8.

Nothing is chosen, cut or tidied; the seed is fixed, so the same model says the same thing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Sample", "Sampled", "samples"]

TEMPERATURE = 0.8


class Sampled(Protocol):
    """What is asked of a model; `eyas.model.Model` is one."""

    def generate(
        self, text: str, /, max_tokens: int, *, temperature: float = 0, seed: int = 0
    ) -> str: ...


@dataclass(frozen=True)
class Sample:
    """One continuation, as it came. Temperature 0 is greedy, where the seed plays no part."""

    prompt: str
    text: str
    temperature: float
    seed: int


def samples(model: Sampled, prompts: Sequence[str], max_tokens: int, seed: int = 1) -> list[Sample]:
    """Two samples a prompt, in the order of the prompts: greedy, then at temperature 0.8."""
    return [
        Sample(
            prompt,
            model.generate(prompt, max_tokens, temperature=temperature, seed=seed),
            temperature,
            seed,
        )
        for prompt in prompts
        for temperature in (0.0, TEMPERATURE)
    ]
