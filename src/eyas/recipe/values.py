"""How a recipe's numbers are written: counts, bytes, durations.

In: what TOML or `--set` gave. Out: an int or a float. K, M, B, T are decimal, Ki, Mi, Gi, Ti binary
(DESIGN, "The recipe"); durations take s, m, h, d. All functions are pure and raise ValueError with
what is legal.
"""

from __future__ import annotations

import re

__all__ = ["format_bytes", "format_count", "format_seconds", "parse_count", "parse_duration"]

_SCALES = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "B": 10**9,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_DURATIONS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)\s*([A-Za-z]*)\s*")


def parse_count(value: object) -> int:
    """An exact whole number from `250000`, `"4M"`, `"1.5T"`, `"64Ki"`."""
    legal = 'write a whole number such as 250000, "4M", "1.5B" or "64Ki"'
    if isinstance(value, bool):
        raise ValueError(legal)
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value)):
        number, unit = match.groups()
        if unit in _SCALES:
            whole, _, rest = number.replace("_", "").lower().partition("e")
            digits, _, fraction = whole.partition(".")
            scaled = int(digits + fraction) * 10 ** int(rest or 0) * _SCALES[unit]
            quotient, remainder = divmod(scaled, 10 ** len(fraction))
            if remainder == 0:
                return quotient
    raise ValueError(legal)


def parse_duration(value: object) -> float:
    """Seconds from `90`, `"90s"`, `"30m"`, `"2h"`, `"1.5d"`."""
    legal = 'write seconds, or a duration such as "90s", "30m", "2h"'
    if isinstance(value, bool):
        raise ValueError(legal)
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value)):
        number, unit = match.groups()
        if unit in _DURATIONS:
            return float(number.replace("_", "")) * _DURATIONS[unit]
    raise ValueError(legal)


def format_count(n: float) -> str:
    """`250K`, `5.24M`, `1T`: three significant digits, decimal."""
    for scale, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if abs(n) >= scale:
            return f"{n / scale:.3g}{unit}"
    return f"{n:.3g}" if isinstance(n, float) else str(n)


def format_bytes(n: float) -> str:
    """`512 B`, `1.50 MiB`: binary units."""
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(n) >= scale:
            return f"{n / scale:.2f} {unit}"
    return f"{n:.0f} B"


def format_seconds(s: float) -> str:
    """`8.1 s`, `3 min 20 s`, `2 h 05 min`, `3.2 days`."""
    if s < 100:
        return f"{s:.1f} s"
    if s < 3600:
        return f"{int(s) // 60} min {int(s) % 60:02d} s"
    if s < 48 * 3600:
        return f"{int(s) // 3600} h {int(s) % 3600 // 60:02d} min"
    return f"{s / 86400:.1f} days"
