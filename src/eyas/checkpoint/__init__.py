"""The checkpoint: tensors in, committed checkpoints in the store; and Hugging Face in and out."""

from __future__ import annotations

from .attempts import latest_attempt, take_attempt
from .commit import Commit, CommitInfo, TensorInfo, list_commits, read_commit, resolve
from .errors import AlreadyCommitted, CheckpointError, Fenced, SaveFailed
from .hf_export import ExportReport, export_hf
from .hf_import import import_hf
from .newest import load_newest, newest_whole, verify_commit
from .open_model import load
from .read_slices import load_slices
from .save import save
from .slices import Slice

__all__ = [
    "AlreadyCommitted",
    "CheckpointError",
    "Commit",
    "CommitInfo",
    "ExportReport",
    "Fenced",
    "SaveFailed",
    "Slice",
    "TensorInfo",
    "export_hf",
    "import_hf",
    "latest_attempt",
    "list_commits",
    "load",
    "load_newest",
    "load_slices",
    "newest_whole",
    "read_commit",
    "resolve",
    "save",
    "take_attempt",
    "verify_commit",
]
