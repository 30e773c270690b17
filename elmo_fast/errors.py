"""Errors that speak to the user: what was wanted, what was given, what to do."""

import os


class ElmoFastError(ValueError):
    """Something the user can put right; the command line prints its message alone and exits with status 2."""


class CheckpointError(ElmoFastError):
    """A checkpoint or options file that cannot be used, named with the tensor or key, the wanted and the found."""


class PerformanceWarning(UserWarning):
    """A slower path was taken than the one that exists; the message says which and why."""


def sentence_of(error: OSError) -> str:
    """What went wrong with which file, in words: "No space left on device: 'out.hdf5'"."""
    text = error.strerror or str(error) or type(error).__name__
    return f"{text}: {os.fspath(error.filename)!r}" if error.filename is not None else text
