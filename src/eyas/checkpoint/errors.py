"""What can go wrong with a checkpoint, told apart by what the reader should do."""

from __future__ import annotations

from eyas.recipe import EyasError

__all__ = ["AlreadyCommitted", "CheckpointError", "Fenced", "SaveFailed"]


class CheckpointError(EyasError):
    """A checkpoint cannot be written, read or understood."""


class SaveFailed(CheckpointError):
    """A rank could not do its part: nothing was committed, on any rank."""


class AlreadyCommitted(CheckpointError):
    """This attempt has committed this step before; that commit stands."""


class Fenced(CheckpointError):
    """A higher attempt has been taken: this process is a leftover and must stop, not retry."""

    exit_code = 93
