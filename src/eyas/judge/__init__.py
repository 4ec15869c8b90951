"""Judging a model: bits per byte on held-out text, and samples to look at."""

from __future__ import annotations

from .bits import DocumentScore, Judged, JudgeError, score_documents, xz_bytes
from .evaluate import (
    EvalReport,
    LanguageScore,
    evaluate,
    read_report,
    report_key,
    write_report,
)
from .heldout import HeldOut, choose, group_small, held_out
from .samples import Sample, samples
from .windows import Window, windows

__all__ = [
    "DocumentScore",
    "EvalReport",
    "HeldOut",
    "JudgeError",
    "Judged",
    "LanguageScore",
    "Sample",
    "Window",
    "choose",
    "evaluate",
    "group_small",
    "held_out",
    "read_report",
    "report_key",
    "samples",
    "score_documents",
    "windows",
    "write_report",
    "xz_bytes",
]
