"""A temporary folder beside the file or folder being written, and the removal of those that dead processes left."""

import contextlib
import errno
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Iterator

from elmo_fast.lock import hold

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SUFFIX, _LOCK = ".partial", ".lock"


@contextlib.contextmanager
def workplace(target: pathlib.Path, shown: str | os.PathLike[str] | None = None) -> Iterator[pathlib.Path]:
    """Yields a temporary folder beside `target`, removed when the block ends, as are those of dead processes.

    A file in it is locked while the block runs: whoever can lock it knows that its process is gone. Other users cannot
    read the folder. OSErrors without a file name get that of `target`, as `shown` to the user.
    """
    try:
        folder, lock = new_workplace(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(shown or target)) from error
    try:
        yield folder
    except OSError as error:
        # A write to an open file fails without a name; these errors come only from writing.
        if error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, os.fspath(shown or target)) from error
        raise
    finally:
        remove_workplace(folder, lock)


def new_workplace(target: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A new temporary folder beside `target` and the handle of its lock; removes those of dead processes."""
    remove_leftovers(target.parent, _prefix(target))
    return _made(target)


def remove_workplace(folder: pathlib.Path, lock: int) -> None:
    """Removes what `new_workplace` made."""
    _remove(folder)
    os.close(lock)
    _remove_if_empty(folder)


def usual_mode(target: pathlib.Path, work: pathlib.Path) -> int:
    """The permissions of `target` or, if it does not exist, those that the umask gives to a new file.

    work: a workplace, whose lock is a new file (reading the umask would change it for all threads).
    """
    return stat.S_IMODE(os.stat(target if target.exists() else work / _LOCK).st_mode)


def remove_leftovers(folder: pathlib.Path, prefix: str = ".") -> None:
    """Removes what dead processes left in a folder under names that begin with `prefix`."""
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)]
        for name in names:
            _remove_if_dead(folder / name)


def _made(target: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A new workplace and the handle of its lock. Until it is locked, another process may consider it abandoned."""
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            # If files cannot be locked, leftovers of killed processes stay: nobody can tell.
            with contextlib.suppress(OSError):
                hold(lock, wait=True)
            if (folder / _LOCK).exists():
                return folder, lock
            os.close(lock)


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name[:100]}."


def _remove_if_dead(path: pathlib.Path) -> None:
    """Remove a workplace that no process has locked; a plain file was left by an older version.

    Links are not followed: whoever may write to the folder could point one at any folder of the user.
    """
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                handle = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
        else:
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        # Its process was killed before it locked it, or is about to lock it and will then create another one.
        return _remove_if_empty(path)
    try:
        with contextlib.suppress(OSError):
            if hold(handle, wait=False):
                _remove(path)
    finally:
        os.close(handle)
    _remove_if_empty(path)


def _remove_if_empty(path: pathlib.Path) -> None:
    """Remove what is left of a workplace: on NFS a file that was removed while open stays until it is closed."""
    with contextlib.suppress(OSError):
        path.rmdir()


def _remove(path: pathlib.Path) -> None:
    """Remove a workplace, its lock last, so that if this is killed the rest is recognized as abandoned."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        return path.unlink(missing_ok=True)
    try:
        for name in sorted(os.listdir(folder), key=_LOCK.__eq__):
            try:
                os.unlink(name, dir_fd=folder)
            except (IsADirectoryError, PermissionError):  # the second is that of other systems than Linux
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            except FileNotFoundError:
                continue
    finally:
        os.close(folder)
    _remove_if_empty(path)
