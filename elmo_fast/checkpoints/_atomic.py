"""Files written under another name, flushed and renamed: readers see the old file or the new, never half of one."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import CheckpointError


@contextlib.contextmanager
def written_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path in the folder of `path` to write to; renamed to `path` on leaving, removed if the body raises.

    Raises: CheckpointError where the folder or the disk does not take it.
    """
    target = Path(path)
    aside: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        os.close(handle)
        aside = Path(name)
        yield aside
        _to_disk(aside)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, target)
        _to_disk(target.parent)
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
