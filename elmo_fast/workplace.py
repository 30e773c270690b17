"""A folder to work in beside what is made there, and what dead processes have left of theirs."""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Iterator

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SUFFIX, _LOCK = ".partial", ".lock"


@contextlib.contextmanager
def workplace(target: pathlib.Path, shown: str | os.PathLike[str] | None = None) -> Iterator[pathlib.Path]:
    """Yields a folder beside `target` to work in, which goes when the block ends; those of dead processes go before.

    A file in it is locked while the block runs: who can lock it knows that nobody is left. Nobody else can read what
    is in the folder. OSErrors without a file's name name `target`, as the caller has `shown` it.
    """
    try:
        remove_leftovers(target.parent, f"{_prefix(target)}")
        folder, lock = _made(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(shown or target)) from error
    try:
        yield folder
    except OSError as error:
        # A write to an open file fails without a name; these errors come from writing alone.
        if error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, os.fspath(shown or target)) from error
        raise
    finally:
        _remove(folder)
        os.close(lock)


def usual_mode(target: pathlib.Path, work: pathlib.Path) -> int:
    """The permissions that `target` has or, where it is not there, that the umask leaves to a new file.

    work: a workplace, whose lock is a new file (to ask for the umask is to change it for all threads).
    """
    return stat.S_IMODE(os.stat(target if target.exists() else work / _LOCK).st_mode)


def remove_leftovers(folder: pathlib.Path, prefix: str = ".") -> None:
    """Removes from a folder what dead processes were making there under names that begin with `prefix`."""
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)]
        for name in names:
            _remove_if_dead(folder / name)


def _made(target: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A new workplace and the handle of its lock. Until it is locked another process may take it for a dead one's."""
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            # Where files cannot be locked, what a killed process leaves stays: nobody can tell.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / _LOCK).exists():
                return folder, lock
            os.close(lock)


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name[:100]}."


def _remove_if_dead(path: pathlib.Path) -> None:
    """Removes a workplace that nobody holds locked; a file is what older versions have left."""
    try:
        handle = os.open(path / _LOCK if path.is_dir() else path, os.O_RDWR)
    except OSError:
        # Its process was killed before it had locked it, or is about to: then it will make another one.
        with contextlib.suppress(OSError):
            path.rmdir()
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
    finally:
        os.close(handle)


def _remove(path: pathlib.Path) -> None:
    """Removes a workplace, its lock last, so that what is left of it when this is killed is known for dead."""
    if not path.is_dir():
        return path.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        for inner in path.iterdir():
            if inner.is_dir():
                shutil.rmtree(inner, ignore_errors=True)
            elif inner.name != _LOCK:
                inner.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
