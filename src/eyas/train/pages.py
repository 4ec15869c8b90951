"""Memory that a training process frees stays with it, for the next step.

glibc hands every block over 32 MiB, and the top of its heap, back to the kernel at once. A step
frees and takes the same gigabytes again each time, and the kernel clears every page anew before it
gives it out: a tenth of the time of a step on a CPU. Huge pages, where the kernel gives them to
those who ask (`madvise`), spare most of what is left and misses of the address cache in products.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_pages"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_NEVER = 2**31 - 1
_LARGEST = 2**30  # bytes; larger blocks come and go as before


def keep_pages() -> None:
    """Ask glibc to keep what is freed, and PyTorch to ask for huge pages, which it looks up when it
    first allocates: call this early. Where there is no glibc it does nothing."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
