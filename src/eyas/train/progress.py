"""How far a run is: what every commit keeps, what the next attempt goes on from, and what the
finished run reports. Values only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .clock import PHASES
from .engine import StepResult

__all__ = ["Progress", "TrainResult", "from_limbs", "to_limbs"]

_MODULUS = 2**64
_LIMB = 2**16
_LIMBS = 4


@dataclass(frozen=True)
class Progress:
    """After `step` steps (so `step` is also the number of the next one): valid tokens, samples and
    digest of all that was consumed, the mean loss of the first and the last step, wall seconds of
    the attempts that led here, and where they went on rank 0."""

    step: int = 0
    tokens: int = 0
    samples: int = 0
    digest: int = 0
    first_loss: float = 0.0
    last_loss: float = 0.0
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def after(self, done: StepResult, samples: int, digest: int) -> Progress:
        """One step further."""
        return dataclasses.replace(
            self,
            step=self.step + 1,
            tokens=self.tokens + done.tokens,
            samples=self.samples + samples,
            digest=(self.digest + digest) % _MODULUS,
            first_loss=self.first_loss if self.step else done.loss,
            last_loss=done.loss,
        )

    def spent(self, seconds: float, phases: Mapping[str, float]) -> Progress:
        """With this much more wall time."""
        added = {name: self.phases.get(name, 0.0) + phases[name] for name in PHASES}
        return dataclasses.replace(self, seconds=self.seconds + seconds, phases=added)

    def facts(self) -> dict[str, Any]:
        """For a commit."""
        return dataclasses.asdict(self) | {"digest": f"{self.digest:016x}"}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Progress:
        """From a commit's facts."""
        values = {f.name: facts[f.name] for f in dataclasses.fields(cls)}
        return cls(**values | {"digest": int(values["digest"], 16)})


@dataclass(frozen=True)
class TrainResult:
    """What a run has come to. `seconds` is wall time with starts, without work that was lost;
    `phases` where it went on rank 0; `peak_memory` bytes of the largest rank; `validation_loss` a
    token, None without a held-out split; `attempts` how often it was started."""

    steps: int
    tokens: int
    samples: int
    digest: int
    first_loss: float
    last_loss: float
    validation_loss: float | None
    seconds: float
    phases: Mapping[str, float]
    step_seconds: float
    tokens_per_s: float
    peak_memory: int
    attempts: int
    complete: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any], attempts: int) -> TrainResult:
        """From a commit's facts."""
        progress = Progress.of(facts)
        stepping = sum(s for name, s in progress.phases.items() if name != "checkpoint")
        return cls(
            steps=progress.step,
            tokens=progress.tokens,
            samples=progress.samples,
            digest=progress.digest,
            first_loss=progress.first_loss,
            last_loss=progress.last_loss,
            validation_loss=facts["validation_loss"],
            seconds=progress.seconds,
            phases=progress.phases,
            step_seconds=stepping / max(1, progress.step),
            tokens_per_s=progress.tokens / max(1e-9, stepping),
            peak_memory=max(facts["peak_rss"]),
            attempts=attempts,
            complete=facts["complete"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the digest in hex."""
        return dataclasses.asdict(self) | {"digest": f"{self.digest:016x}"}


def to_limbs(digest: int) -> list[int]:
    """64 bits as four numbers below 2^16, lowest first: their sums over ranks, even a million, are
    exact in float64."""
    return [digest // _LIMB**i % _LIMB for i in range(_LIMBS)]


def from_limbs(limbs: Sequence[int]) -> int:
    """The sum of digests, modulo 2^64, from the sums of their limbs."""
    return sum(limb * _LIMB**i for i, limb in enumerate(limbs)) % _MODULUS
