"""Jobs: the supervisor that starts, watches, restarts and stops the ranks of one host."""

from __future__ import annotations

from .supervisor import supervise

__all__ = ["supervise"]
