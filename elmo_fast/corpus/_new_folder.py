"""A folder takes its name when it is whole."""

import os
import pathlib

from elmo_fast.files import flush


def put(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path) -> None:
    """Gives the folder `new`, whose files are on the disk, the name `target`; one that is there goes into `work`."""
    flush(new)
    old = work / "old"
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    flush(target.parent)
