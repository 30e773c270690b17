"""Files that are either complete under their name or absent."""

import contextlib
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator

from elmo_fast.errors import ElmoFastError


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary name beside `path`; renames it to `path` when the block ends well, else removes it.

    The bytes are on the disk before the name appears, so that no error, signal or crash leaves a part of a file under
    `path`; an existing file stays as it was until then. Raises ElmoFastError when `path` is something other than a
    regular file, and OSError when the folder cannot be written.
    """
    target = pathlib.Path(os.path.realpath(path))
    mode = 0o666 & ~_umask()
    if target.exists():
        if not target.is_file():
            kind = "a folder" if target.is_dir() else "a device or pipe"
            raise ElmoFastError(f"cannot write {os.fspath(path)!r}: it is {kind}, and a regular file is needed")
        mode = stat.S_IMODE(target.stat().st_mode)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".partial", dir=target.parent)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        _flush(temporary)
        os.replace(temporary, target)
        _flush(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
