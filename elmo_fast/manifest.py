"""Files that belong together: they change all at once, and manifest.json holds their digests."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import warnings
from collections.abc import Collection, Iterator
from typing import Literal

from elmo_fast.errors import CheckpointError, read_failures_named, sentence_of
from elmo_fast.fields import read_json
from elmo_fast.files import flush, refuse_other_kinds, sha256_of, usual_mode, workplace

MANIFEST = "manifest.json"
# Complete files that only have to be moved up into the parent folder.
_NEW = ".new-files"


@dataclasses.dataclass
class FileMark:
    """Size and digest of a file when it was written."""

    sha256: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes:,} bytes of sha256 {self.sha256[:16]}"


@dataclasses.dataclass
class Manifest:
    """The content of manifest.json; files: by name within its folder."""

    format: Literal["elmo_fast manifest"]
    version: Literal[1]
    files: dict[str, FileMark]


def write_manifest(folder: pathlib.Path) -> None:
    """Write the manifest of all files of a folder into it."""
    marks = {name: mark_of(folder / name) for name in sorted(os.listdir(folder))}
    content = dataclasses.asdict(Manifest("elmo_fast manifest", 1, marks))
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def writing_together(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield an empty folder; if the block succeeds, its files move into `folder`, with a manifest.json.

    Whenever this is killed, readers find either all old files or all new ones: the new files are complete and on disk
    in a separate folder before one rename gives that folder the name from which `settle` moves them up. Other files in
    `folder` stay. Raises ElmoFastError if a target name is not a file, and OSError.
    """
    target = pathlib.Path(os.path.realpath(folder))
    with workplace(target / MANIFEST) as work:
        new = work / "new"
        new.mkdir()
        yield new
        write_manifest(new)
        move_together(new, target, work)


def move_together(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path) -> None:
    """Move all files of the folder `new` into the folder `target`, where readers call `settle` before they read.

    Whenever this is killed, they find either all old files or all new ones. work: the workplace that holds `new`.
    """
    for name in os.listdir(new):
        refuse_other_kinds(target / name, target / name)
        (new / name).chmod(usual_mode(target / name, work))
        flush(new / name)
    flush(new)
    while True:
        try:
            new.rename(target / _NEW)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            settle(target)  # those of an earlier save are still there
    flush(target)
    settle(target)


def settle(folder: pathlib.Path) -> None:
    """Finish a `writing_together` that was killed while it moved files up. Several processes may do this at once.

    Only a real folder is moved up: a link, which no save creates, could name any folder of the user.
    """
    new = folder / _NEW
    if new.is_symlink():
        raise CheckpointError(f"{new}: is a link, and a save that was interrupted leaves a folder; delete the link")
    try:
        while new.is_dir():
            for name in os.listdir(new):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(new / name, folder / name)
            flush(folder)
            try:
                new.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):  # another process has removed or replaced it
                    raise
    except OSError as error:
        raise CheckpointError(
            f"{folder}: a save was interrupted at its last step, and the files in {new.name} cannot be moved up "
            f"({sentence_of(error)}); make the folder writable, or copy it and move them there"
        ) from error


def check_written(folder: pathlib.Path, names: Collection[str]) -> bool:
    """Compare files with their folder's manifest; False if it has none, as in folders of older versions.

    Raises CheckpointError naming the file that is missing or differs from the one that was written.
    """
    settle(folder)
    path = folder / MANIFEST
    if not path.exists():
        return False
    advice = f"restore the file or, if you meant to change it, delete {path}; the folder is then no longer checked"
    marks = read_json(path, Manifest).files
    for name in names:
        if name not in marks:
            raise CheckpointError(f"{path}: does not list {name}, which is not from the same save; {advice}")
        check_mark(folder / name, marks[name], advice)
    return True


def check_mark(path: pathlib.Path, expected: FileMark, advice: str) -> None:
    """Raise CheckpointError, with the advice what to do, unless a file is the one that was written."""
    with read_failures_named(path):
        actual = mark_of(path)
    if actual != expected:
        raise CheckpointError(
            f"{path}: damaged, or changed after it was written: wanted {expected}, as in {MANIFEST}, found {actual}; "
            f"{advice}"
        )


def check_older(path: pathlib.Path, expected: str | None, source: str) -> None:
    """Raise CheckpointError unless a file has the digest that older versions wrote into another one, if they did."""
    with read_failures_named(path):
        if expected is not None and (actual := sha256_of(path)) != expected:
            what = f"damaged, or not from the same save as {source}"
            raise CheckpointError(f"{path}: {what}: wanted sha256 {expected[:64]}, found {actual}")


def warn_unchecked(folder: pathlib.Path, names: Collection[str]) -> None:
    """Warn which files of a folder without a manifest could not be checked."""
    warnings.warn(
        f"{folder} has no {MANIFEST} (older versions wrote none): whether {', '.join(names)} "
        f"{'are' if len(names) > 1 else 'is'} as written could not be checked; the next save writes one",
        stacklevel=3,
    )


def mark_of(path: pathlib.Path) -> FileMark:
    """Size and digest of a file."""
    return FileMark(sha256_of(path), path.stat().st_size)
