"""Errors for users: what was wanted, what was given, what to do."""

import contextlib
import difflib
import importlib
import os
import pathlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

_SHOWN = 8  # complaints about one file


def printable(text: str) -> str:
    """Return a text with characters that no terminal should get from a file or a server escaped as repr escapes them.

    These are control characters except the line break, directions of writing, lone surrogates and the like.
    """
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class ElmoFastError(ValueError):
    """Something the user can fix; the command line prints only its message and exits with status 2.

    Messages quote files and servers: they are `printable`.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class CheckpointError(ElmoFastError):
    """A checkpoint or options file that cannot be used; the message names the tensor or key, wanted and found."""


class ShortageError(ElmoFastError):
    """Memory ran out; the message says how much was requested and left, and what needs less."""


class MissingExtraError(ElmoFastError, ImportError):
    """A library that only some functions need is not installed; the message gives the command that installs it."""


class PerformanceWarning(UserWarning):
    """A slower path runs although a faster one exists; the message says which and why."""


def sentence_of(error: OSError) -> str:
    """Return what went wrong with which file: "No space left on device: 'out.hdf5'"; a name of pages is cut."""
    text = error.strerror or str(error) or type(error).__name__
    return f"{text}: {os.fspath(error.filename)!r:.3900}" if error.filename is not None else text


@contextlib.contextmanager
def read_failures_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError of the block into a CheckpointError that names the file: `path`, where the error names none."""
    try:
        yield
    except OSError as error:
        file = os.fspath(error.filename or path)
        raise CheckpointError(f"{file}: cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def write_failures_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Create the folder of `path`; turns an OSError of the block into a CheckpointError that names `path`."""
    try:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error})") from error


def refuse(source: object, complaints: Sequence[str]) -> NoReturn:
    """Raise the CheckpointError "source: complaint; complaint; ... and n more"."""
    rest = f"; and {len(complaints) - _SHOWN} more" if len(complaints) > _SHOWN else ""
    raise CheckpointError(f"{source}: {'; '.join(complaints[:_SHOWN])}{rest}")


def shortened(text: str) -> str:
    """At most 60 characters of what was given, so that an error message stays readable."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def quoted(value: Any) -> str:
    """Return what was given as Python writes it, at most 60 characters; a string that is cut ends in '...' quoted."""
    if isinstance(value, str) and len(value) > 57:
        return repr(f"{value[:54]}...")
    return shortened(repr(value))


def not_a_string(value: Any, name: str, wanted: str) -> None:
    """Raise ElmoFastError if a string is given instead of a list: it would be read letter by letter.

    name: the argument; wanted: what it must be, such as "a list of words"
    """
    if isinstance(value, str | bytes):
        raise ElmoFastError(
            f"{name} must be {wanted}; got the string {quoted(value)}, which would be read letter by letter"
        )


def did_you_mean(value: Any, choices: Collection[str]) -> str:
    """Return the end of a sentence that names the choice nearest to a value, or nothing where none is near."""
    by_lower_case = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(str(value).lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[near[0]]}?" if near else ""


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ElmoFastError unless the value of the argument `name` is one of the choices."""
    if value not in choices:
        raise ElmoFastError(f"{name} must be one of {', '.join(choices)}; got {value!r}{did_you_mean(value, choices)}")


def check_counts(**counts: int | None) -> None:
    """Raise ElmoFastError unless each argument is a whole number from 1 on, or None."""
    for name, count in counts.items():
        if count is not None and not (hasattr(count, "__index__") and count >= 1):
            whole = "" if hasattr(count, "__index__") else "a whole number, "
            raise ElmoFastError(f"{name} must be {whole}1 or more; got {count!r}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages; pip keeps the elmo_fast that is installed, a clone too."""
    return f'pip install "elmo-fast[{extra}]"'


def reinstall_command() -> str:
    """Return the command that compiles and installs this package again: a clone, or from where it was installed."""
    folder = pathlib.Path(__file__).parent.parent
    if (folder / "setup.py").is_file():  # a clone
        return f"pip install --no-build-isolation -e {shlex.quote(str(folder))}"
    return "pip install --force-reinstall --no-deps --no-cache-dir SOURCE (elmo-fast, or what it was installed from)"


def require(module: str, extra: str, purpose: str) -> Any:
    """Import and return the module of that dotted name.

    extra: the extra of this package that installs it; purpose: what needs it, the subject of the sentence.
    Raises MissingExtraError when it is not installed; an error inside it passes through.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing != module.split(".")[0]:
            raise
        absent = MissingExtraError(f"{purpose} needs {missing}, which is not installed: {install_command(extra)}")
        absent.name = missing
        raise absent from error
