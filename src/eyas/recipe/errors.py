"""The one family of errors that a user sees: a plain sentence that says what to do.

The command line prints the sentence and exits with `exit_code`; a traceback only with --debug.
"""

__all__ = ["EyasError", "UsageError"]


class EyasError(Exception):
    """Something the user can act on. The message is one or two plain sentences."""

    exit_code = 1


class UsageError(EyasError):
    """Wrong usage: a bad recipe, a bad argument."""

    exit_code = 2
