"""Errors that speak to the user: what was wanted, what was given, what to do."""

import importlib
import os
from typing import Any


class ElmoFastError(ValueError):
    """Something the user can put right; the command line prints its message alone and exits with status 2."""


class CheckpointError(ElmoFastError):
    """A checkpoint or options file that cannot be used, named with the tensor or key, the wanted and the found."""


class ShortageError(ElmoFastError):
    """Memory ran out; the message says how much was wanted and left, and what takes less."""


class MissingExtraError(ElmoFastError, ImportError):
    """A library that only some functions need is not installed; the message names the line that installs it."""


class PerformanceWarning(UserWarning):
    """A slower path was taken than the one that exists; the message says which and why."""


def sentence_of(error: OSError) -> str:
    """What went wrong with which file, in words: "No space left on device: 'out.hdf5'"."""
    text = error.strerror or str(error) or type(error).__name__
    return f"{text}: {os.fspath(error.filename)!r}" if error.filename is not None else text


def not_a_string(value: Any, name: str, wanted: str) -> None:
    """Raises ElmoFastError where a list is wanted and one string is given, which would be read letter by letter.

    name: of the argument; wanted: what it must be, as "a list of words"
    """
    if isinstance(value, str | bytes):
        raise ElmoFastError(f"{name} must be {wanted}; got the string {value!r:.60}, whose letters would be taken")


def require(module: str, extra: str, purpose: str) -> Any:
    """The module of that dotted name, imported now.

    extra: the extra of this package that brings it; purpose: what needs it, the subject of the sentence.
    Raises MissingExtraError when it is not installed; an error within it passes through.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing != module.split(".")[0]:
            raise
        absent = MissingExtraError(
            f'{purpose} needs {missing}, which is not installed: pip install "elmo-fast[{extra}]"'
        )
        absent.name = missing
        raise absent from error
