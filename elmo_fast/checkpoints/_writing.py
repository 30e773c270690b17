"""Complete files or none; disk errors become a CheckpointError."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import CheckpointError
from ..files import replacing


@contextlib.contextmanager
def failures_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Creates the folder of `path`; turns an OSError of the block into a CheckpointError that names `path`."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextlib.contextmanager
def written_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a name beside `path` to write to; it takes the place of `path` if the block succeeds (files.replacing)."""
    with failures_named(path), replacing(path) as aside:
        yield aside
