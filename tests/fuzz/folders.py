"""Folder of a case's files, and the valid files that it damages: written once per process, in folders of its own."""

import functools
import pathlib
import random
import shutil
import tempfile
from collections.abc import Callable

from tests.fuzz.damage import damaged, damaged_json

_folder = tempfile.TemporaryDirectory(prefix="elmo_fast_fuzz_")  # of this process
root = pathlib.Path(_folder.name)


def fresh() -> pathlib.Path:
    """An empty folder for a case; files of the case before are removed."""
    folder = root / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def copied(valid: pathlib.Path) -> pathlib.Path:
    """`fresh()` with a copy of a valid file or folder in it."""
    target = fresh() / valid.name
    (shutil.copytree if valid.is_dir() else shutil.copyfile)(valid, target)
    return target


def damaged_copy(valid: pathlib.Path, rng: random.Random) -> pathlib.Path:
    """A file of `copied(valid)`, chosen and damaged, now and then removed: its folder is the parent."""
    folder = copied(valid)
    path = folder / rng.choice(sorted(each.name for each in folder.iterdir() if each.is_file()))
    if rng.random() < 0.03:
        path.unlink()
    elif path.suffix == ".json" and path.read_bytes():
        path.write_bytes(damaged_json(rng, path.read_text()))
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))
    return path


def valid(make: Callable[[pathlib.Path], pathlib.Path]) -> Callable[[], pathlib.Path]:
    """Cache a function of (an empty folder) -> the valid file or folder in it."""

    @functools.cache
    def once() -> pathlib.Path:
        folder = root / "valid" / f"{make.__module__}.{make.__name__}"
        folder.mkdir(parents=True)
        return make(folder)

    return once
