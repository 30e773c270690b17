"""Files that belong together: they change all at once, and manifest.json says what they were when they were written."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import warnings
from collections.abc import Collection, Iterator
from typing import Literal

from elmo_fast.errors import CheckpointError, sentence_of
from elmo_fast.files import flush, refuse_other_kinds, sha256_of
from elmo_fast.json_files import read_json
from elmo_fast.workplace import usual_mode, workplace

MANIFEST = "manifest.json"
# Files that are written, and only have to be moved up into the folder that this one is in.
_NEW = ".new-files"


@dataclasses.dataclass
class FileMark:
    """What a file was when it was written."""

    sha256: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes:,} bytes of sha256 {self.sha256[:16]}"


@dataclasses.dataclass
class Manifest:
    """The content of manifest.json; files: by their names in its folder."""

    format: Literal["elmo_fast manifest"]
    version: Literal[1]
    files: dict[str, FileMark]


class NewFiles:
    """Files that are being written, in a folder of their own; a digest is computed once, when its file is whole."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._marks: dict[str, FileMark] = {}

    def sha256(self, name: str) -> str:
        """The digest of a file that will not change any more."""
        if name not in self._marks:
            self._marks[name] = _mark_of(self.folder / name)
        return self._marks[name].sha256

    def seal(self, name: str, target: pathlib.Path, work: pathlib.Path) -> None:
        """Sees to it that a file can take the place of `target`, with its permissions, and is on the disk."""
        refuse_other_kinds(target, target)
        (self.folder / name).chmod(usual_mode(target, work))
        flush(self.folder / name)

    def manifest(self) -> Manifest:
        """What is said of all files that are there."""
        for name in sorted(os.listdir(self.folder)):
            self.sha256(name)
        return Manifest("elmo_fast manifest", 1, dict(sorted(self._marks.items())))


@contextlib.contextmanager
def writing_together(folder: str | os.PathLike[str]) -> Iterator[NewFiles]:
    """Yields an empty folder; the files that are in it when the block ends well go into `folder`, with a manifest.json.

    Whenever this is killed, readers find all files as they were or all of the new ones: these are complete and on the
    disk, in a folder of their own, before that takes the name from which `settle` moves them up, in one renaming. Other
    files in `folder` stay. Raises ElmoFastError when something else than a file has such a name, and OSError.
    """
    target = pathlib.Path(os.path.realpath(folder))
    with workplace(target / MANIFEST) as work:
        new = NewFiles(work / "new")
        new.folder.mkdir()
        yield new
        whole = new.manifest()
        text = json.dumps(dataclasses.asdict(whole), indent=1) + "\n"
        (new.folder / MANIFEST).write_text(text, encoding="utf-8")
        for name in (*whole.files, MANIFEST):
            new.seal(name, target / name, work)
        flush(new.folder)
        while not _put(new.folder, target):
            settle(target)
    settle(target)


def _put(new: pathlib.Path, target: pathlib.Path) -> bool:
    """Renames the folder of new files to where `settle` finds it; False where those of an earlier save are there."""
    try:
        new.rename(target / _NEW)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    flush(target)
    return True


def settle(folder: pathlib.Path) -> None:
    """Moves up the files of a `writing_together` that was killed as it did so. Several processes may do it at once."""
    new = folder / _NEW
    try:
        while new.is_dir():
            for name in os.listdir(new):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(new / name, folder / name)
            flush(folder)
            _remove_empty(new)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: a save was broken off there at its last step, and the files in {new.name} cannot be moved up "
            f"({sentence_of(error)}); make the folder writable, or copy it and move them there"
        ) from error


def _remove_empty(folder: pathlib.Path) -> None:
    """Removes a folder unless another process has done so, or has put its own in that place meanwhile."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def check_written(folder: pathlib.Path, names: Collection[str]) -> bool:
    """Compares files with the manifest beside them; False where there is none, as in folders of older versions.

    Raises CheckpointError naming the file that is missing, or not the one that was written.
    """
    settle(folder)
    path = folder / MANIFEST
    if not path.exists():
        return False
    told = read_json(path, Manifest).files
    for name in names:
        if name not in told:
            raise CheckpointError(f"{path}: says nothing of {name}, which is not of the same save; {_advice(path)}")
        try:
            found = _mark_of(folder / name)
        except OSError as error:
            raise CheckpointError(f"{folder / name}: cannot be read ({error.strerror or error})") from error
        if found != told[name]:
            raise CheckpointError(
                f"{folder / name}: damaged, or changed after it was written: wanted {told[name]}, as in {MANIFEST}, "
                f"found {found}; {_advice(path)}"
            )
    return True


def warn_unchecked(folder: pathlib.Path, names: Collection[str]) -> None:
    """Says which files of a folder without a manifest nothing could be compared with."""
    warnings.warn(
        f"{folder} has no {MANIFEST} (older versions wrote none): whether {', '.join(names)} "
        f"{'are' if len(names) > 1 else 'is'} as written could not be checked; saving anew writes one",
        stacklevel=3,
    )


def _advice(path: pathlib.Path) -> str:
    return f"put back what was written or, if the change was meant, remove {path} and nothing there will be checked"


def _mark_of(path: pathlib.Path) -> FileMark:
    return FileMark(sha256_of(path), path.stat().st_size)
