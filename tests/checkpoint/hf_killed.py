"""An import or an export that is killed (SIGKILL) at a point on its way.

    python -m tests.checkpoint.hf_killed import FOLDER STORE POINT
    python -m tests.checkpoint.hf_killed export STORE FOLDER POINT

POINT of an import: "middle" of a payload, "index" before one is put, "tokenizer" before its
manifest, "commit" before the commit. Of an export: "middle" of the weights, "compare" before
transformers is asked, "sums" before the checksums, "rename" before the last step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from eyas.checkpoint import export_hf, hf_export, import_hf
from eyas.store import open_store

from .faults import Around

KEYS = {"middle": ".safetensors", "index": ".index.json", "commit": "/commits/"}


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Around):
    """At the first write of a key with `part` in it, after one chunk of one that comes in many."""

    def __init__(self, inner: Any, part: str) -> None:
        super().__init__(inner)
        self._part = part

    def put(self, key: str, data: bytes) -> None:
        self._see(key)
        self.inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._see(key)
        return bool(self.inner.put_if_absent(key, data))

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        def dying() -> Iterator[bytes]:
            for chunk in chunks:
                yield chunk
                self._see(key)

        return int(self.inner.put_chunks(key, dying()))

    def _see(self, key: str) -> None:
        if self._part in key:
            die()


def main(verb: str, source: str, target: str, point: str) -> None:
    if verb == "import":
        part = KEYS.get(point, "tokenizer/manifest")
        import_hf(source, Dying(open_store(target), part))  # type: ignore[arg-type]
        return
    if point == "middle":
        original: Callable[..., Iterator[memoryview]] = hf_export.tensor_pieces

        def pieces(tensor: Any) -> Iterator[memoryview]:
            for piece in original(tensor):
                yield piece[: len(piece) // 2]
                die()

        hf_export.tensor_pieces = pieces
    elif point == "compare":
        hf_export.compare = die  # type: ignore[assignment]
    elif point == "sums":
        hf_export._write_sums = die
    else:
        Path.rename = die  # type: ignore[method-assign, assignment]
    export_hf(source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
