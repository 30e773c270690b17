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
        shutil.rmtree(folder, ignore_errors=True)
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
        for path in (folder / name for name in names):
            if not _dead(path):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _made(target: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A new workplace and the handle of its lock."""
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        # Where files cannot be locked, what a killed process has left stays there: `_dead` cannot lock it either.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        os.close(lock)  # another process has found it before it was locked, and has taken it for a dead one's


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name[:100]}."


def _dead(path: pathlib.Path) -> bool:
    """Whether nobody works there any more; a file is what older versions have left."""
    try:
        handle = os.open(path / _LOCK if path.is_dir() else path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
