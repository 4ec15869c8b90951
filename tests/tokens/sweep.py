"""Reads by the thousand through the fault proxy, each held against what was written.

A read is a block of a token object, checked by its own checksum on the way into a batch whose
digest must be the undisturbed one; or a whole object, checked against who vouches for it.
Damage that comes twice in a row is named, as it must be, and that read is asked for again here, as
an operator would; everything else has to come right by itself.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.faults import Kind, Proxy, Rates

from eyas.store import Corrupt, ObjectRef, Store, open_store, read_manifest, read_object
from eyas.tokens import Tokens, open_tokens

__all__ = ["OF_READS", "Swept", "Undisturbed", "renewable_credentials", "sweep"]

OF_READS: tuple[Kind, ...] = (
    *("slow down", "slow down, retry after", "internal error", "expired token", "reset"),
    *("lost answer", "stall", "reset in body", "truncated", "stall in body", "bit flipped"),
    *("bits flipped", "short length", "wrong range", "closed when idle"),
)
THREADS = 4
ASKED_AGAIN = 5


@dataclass
class Swept:
    """`reads` of blocks and objects; `named`: batches and objects whose damage was named instead of
    passed on; `wrong`: of another content than was written; `lost`: what could not be read."""

    reads: int = 0
    named: int = 0
    wrong: int = 0
    lost: list[str] = field(default_factory=list)
    injected: Counter[Kind] = field(default_factory=Counter)

    def row(self, name: str) -> str:
        """A line of the table."""
        injected = sum(self.injected.values())
        cells = (name, self.reads, injected, self.named, self.wrong, len(self.lost))
        return "| " + " | ".join(f"{c:,}" if isinstance(c, int) else c for c in cells) + " |"


@dataclass(frozen=True)
class Undisturbed:
    """What a store holds, read without a proxy: the digest of each step, the bytes of objects."""

    digests: tuple[int, ...]
    objects: Mapping[ObjectRef, bytes]

    @classmethod
    def of(cls, store: Store) -> Undisturbed:
        manifests = [read_manifest(store, room) for room in ("corpus", "tokenizer", "tokens")]
        references = [o for m in manifests if m is not None for o in m.objects]
        tokens = open_tokens(store)
        digests = tuple(tokens.batch(step).digest for step in range(tokens.steps))
        return cls(digests, {o: read_object(store, o) for o in references})


class _Counted:
    """A store that counts what is read of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("get", "get_range", "read_into"):
            with self._lock:
                self.reads += 1
        return found


def renewable_credentials(
    folder: Path, access: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From now on a process hands out the keys, so that what is said to have expired is renewed."""
    keys = {"AccessKeyId": access, "SecretAccessKey": secret}
    given = {"Version": 1, "Expiration": "2100-01-01T00:00:00Z"} | keys
    printed, config = folder / "keys.json", folder / "config"
    printed.write_text(json.dumps(given), encoding="utf-8")
    config.write_text(f"[default]\ncredential_process = cat {printed}\n", encoding="utf-8")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))


def sweep(
    url: str,
    between: Proxy,
    shares: Mapping[Kind, float],
    seed: int,
    reads: int,
    truth: Undisturbed,
) -> Swept:
    """At least that many reads of the store at `url`, to which the proxy leads, by four threads.
    Faults start after it was opened."""
    counted, result, lock = _Counted(open_store(url)), Swept(), threading.Lock()
    store: Any = counted
    tokens = open_tokens(store, cache_bytes=1)
    jobs = _jobs(store, tokens, truth)
    start, before = counted.reads, Counter(between.injected)
    between.rates = Rates(seed, shares)

    def work() -> None:
        while counted.reads - start < reads:
            with lock:
                name, right = next(jobs)
            named, outcome = _one(right)
            with lock:
                result.named += named
                result.wrong += outcome is False
                if isinstance(outcome, str):
                    result.lost.append(f"{name}: {outcome}")

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(work) for _ in range(THREADS)]:
            future.result()
    between.rates = Rates(seed, {})
    result.reads, result.injected = counted.reads - start, between.injected - before
    return result


def _jobs(
    store: Store, tokens: Tokens, truth: Undisturbed
) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Every step and every object, again and again: a name, and whether what is read is right."""
    while True:
        objects = iter(truth.objects.items())
        for step, digest in enumerate(truth.digests):
            yield f"step {step}", lambda s=step, d=digest: tokens.batch(s).digest == d  # type: ignore[misc]
            for reference, data in itertools.islice(objects, 1):
                yield (
                    reference.key,
                    lambda r=reference, d=data: read_object(store, r) == d,  # type: ignore[misc]
                )


def _one(right: Callable[[], bool]) -> tuple[int, bool | str]:
    """How often damage was named, and whether the content was right, or the error it ended in."""
    for named in range(ASKED_AGAIN):
        try:
            return named, right()
        except Corrupt as error:
            last: Exception = error
        except Exception as error:  # noqa: BLE001 - whatever it is, the sweep goes on and reports it
            return named, repr(error)
    return ASKED_AGAIN, repr(last)
