"""Memory shortages as one clear error, whichever library reports them. Needs no torch."""

import errno
import functools
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from elmo_fast.errors import ShortageError
from elmo_fast.memory import available
from elmo_fast.sizes import size

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Place = TypeVar("Place", bound=str | os.PathLike[str])

# How libraries report a shortage when they raise no MemoryError.
_SAID = re.compile(
    r"allocate memory|not enough memory|out of memory|bad_alloc|unable to (allocate|mmap)|memory allocation failed|"
    r"failed to map segment|can't start new thread",
    re.IGNORECASE,
)
# What a file's size explains: its bytes, read, converted and copied, plus some overhead.
_COPIES, _BESIDE = 4, 1 << 28
# Options of commands that change the memory needed when lowered or raised.
_LESS = (
    "batch_size",
    "max_tokens",
    "unroll_steps",
    "n_negative_samples_batch",
    "processes",
    "threads",
    "max_vocab_size",
)
_MORE = ("micro_batches",)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that memory ran out."""
    while error is not None:
        if isinstance(error, MemoryError | ShortageError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(error, RuntimeError | ImportError | OSError) and _SAID.search(str(error)):
            return True
        error = error.__cause__
    return False


def told(error: BaseException, options: Mapping[str, Any]) -> ShortageError:
    """The shortage as one sentence that names the options to lower."""
    less = [f"--{name}" for name in _LESS if name in options]
    # Exact shards are parts already.
    more = [f"--{name}" for name in _MORE if name in options and not options.get("exact_shards")]
    advice = [f"lower {' or '.join(less)}"] * bool(less) + [f"raise {' or '.join(more)}"] * bool(more)
    return ShortageError(
        f"memory ran out{_asked(error)}{_left()}; {', '.join([*advice, 'end other programs'])}, or allow more (ulimit "
        "-v, the container's limit)"
    )


def _asked(error: BaseException) -> str:
    found = re.search(r"allocate (\d+) bytes|allocate ([\d.]+ \w+) for", str(error))
    if found is None:
        return ""
    return f": {size(int(found[1])) if found[1] else found[2].replace('. ', ' ')} more were requested"


def _left() -> str:
    left = available()
    return "" if left is None else f" ({size(left)} are left to this process)"


def reader(
    function: Callable[Concatenate[Place, Parameters], Result],
) -> Callable[Concatenate[Place, Parameters], Result]:
    """Makes a function that reads a file or folder raise ShortageError when memory runs out, in whatever form.

    A file that needs memory out of all proportion to its size is damaged; the function's own error then stands.
    """

    @functools.wraps(function)
    def reading(path: Place, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return function(path, *arguments, **named)
        except Exception as error:
            left = available()
            if not is_shortage(error) or (left is not None and left > _COPIES * _size(path) + _BESIDE):
                raise
            raise ShortageError(f"{path}: memory ran out while reading it{_left()}; the file may be intact") from error

    return reading


def _size(path: str | os.PathLike[str]) -> int:
    """Bytes of a file, or of all files of a folder."""
    place = pathlib.Path(path)
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())
