"""A folder gets its name when it is complete."""

import os
import pathlib

from elmo_fast.files import flush


def put(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path) -> None:
    """Renames the folder `new`, whose files are on disk, to `target`; an existing one moves into `work`."""
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
