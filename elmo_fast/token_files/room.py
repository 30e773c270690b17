"""Whether a disk has room for a file, asked before its contents are computed."""

import os
import shutil

from elmo_fast.errors import ElmoFastError
from elmo_fast.memory import size


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes free on the disk where `path` is to be written."""
    return shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free


def check_room(path: str | os.PathLike[str], needed: int, advice: str = "") -> None:
    """Raises ElmoFastError when the disk has less room than the vectors take; advice: what takes less."""
    free = free_bytes(path)
    if needed > free:
        raise ElmoFastError(
            f"no space left on device for {os.fspath(path)!r}: the vectors take {size(needed)} and {size(free)} are "
            f"free{advice}"
        )
