"""Numbers and names in the words of the report's page."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["dollars", "percent", "plain", "ranked", "rate"]


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def plain(name: str) -> str:
    """A key as words."""
    return name.replace("_", " ")


def percent(part: float, whole: float) -> str:
    """Two digits of a share."""
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 10 or share == int(share) else f"{share:.2g} %"


def dollars(value: float) -> str:
    """To the cent."""
    return "under 1 ¢" if 0 < value < 0.01 else f"${value:,.2f}"


def rate(value: float | None) -> str:
    """A few digits; a dash for what is not known."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
