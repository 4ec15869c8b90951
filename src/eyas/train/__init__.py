"""Training: the loop of a rank, under any layout, resumable to the bit."""

from __future__ import annotations

from .engine import Engine, NonFinite, StepResult
from .loop import train
from .mesh import Mesh
from .pages import keep_pages
from .prepare import run_report
from .progress import TrainResult
from .rank import run_rank
from .schedule import learning_rate

__all__ = [
    "Engine",
    "Mesh",
    "NonFinite",
    "StepResult",
    "TrainResult",
    "keep_pages",
    "learning_rate",
    "run_rank",
    "run_report",
    "train",
]
