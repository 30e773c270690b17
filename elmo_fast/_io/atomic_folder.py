"""A folder that is complete or absent: written next to its place, put there by one rename, with manifest.json.

Writers use `write_folder`, readers `read_folder`, which writes nothing.
"""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from elmo_fast._io.atomic_file import flush, refuse_other_kinds, sha256_of, usual_mode
from elmo_fast._io.fields import read_json
from elmo_fast._io.locks import LOCK_FILE, file_lock, temporary_folder
from elmo_fast.errors import CheckpointError, read_failures_named, sentence_of

MANIFEST = "manifest.json"
# A complete folder within the folder whose files it replaces.
_NEW = ".new-files"
_EDITED = "restore the file or, if you meant to change it, delete {folder}/manifest.json; nothing is then checked"
Result = TypeVar("Result")


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


@contextlib.contextmanager
def write_folder(path: str | os.PathLike[str], *, replace: bool = True) -> Iterator[pathlib.Path]:
    """Yield an empty folder; if the block succeeds, its files are at `path`, with a manifest.json.

    Whenever this is killed, readers find either all old files or all new ones. A folder that does not exist appears by
    one rename of the complete one. In an existing folder the files of the same names are replaced, and others stay.

    replace: False leaves a folder that has a manifest as it is: another process has written the same.

    Raises ElmoFastError if a target name is not a file, and OSError.
    """
    target = pathlib.Path(os.path.realpath(path))
    # In an existing folder, even if it is empty: its parent may be another disk, or not writable.
    in_place = target.exists()
    with temporary_folder(target / MANIFEST if in_place else target, path) as work:
        new = work / "new"
        new.mkdir()
        yield new
        write_manifest(new)
        for name in os.listdir(new):
            refuse_other_kinds(target / name, target / name)
            (new / name).chmod(usual_mode(target / name, work))
            flush(new / name)
        flush(new)
        if not in_place:
            try:
                new.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                in_place = True  # another process has written one meanwhile
            else:
                with _published(target):
                    flush(target.parent)
        if in_place:
            _replace_files(new, target, work, replace=replace)


def finish_folder(path: pathlib.Path) -> None:
    """Complete a `write_folder` that was killed while it replaced the files of an existing folder; for writers."""
    if _pending(path) is not None:
        with temporary_folder(path / MANIFEST) as work:
            _replace_files(None, path, work)


def _replace_files(new: pathlib.Path | None, target: pathlib.Path, work: pathlib.Path, *, replace: bool = True) -> None:
    """Replace files of `target` by those of the complete folder `new`, after those that a killed process left.

    No file system replaces several files at once, and a whole folder cannot be replaced where it holds others: a
    run's checkpoints, or what users put there. So one rename puts `new` into the folder, where readers look first
    (`_version`); then its files get their names, as links, and it is removed.
    """
    with file_lock(target / f".{MANIFEST}{LOCK_FILE}", lambda: None):
        if (left := _pending(target)) is not None:
            _name_files(left, target, work)
        if new is not None and (replace or not (target / MANIFEST).exists()):
            new.rename(target / _NEW)
            with _published(target):
                flush(target)
                _name_files(target / _NEW, target, work)


@contextlib.contextmanager
def _published(target: pathlib.Path) -> Iterator[None]:
    """Warn of an OSError after the rename that readers see: the save has taken effect."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{target} is saved, but {sentence_of(error)}; the next save there tidies up", stacklevel=5)


def _name_files(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path) -> None:
    links = pathlib.Path(tempfile.mkdtemp(dir=work))
    for name in os.listdir(new):
        try:
            os.link(new / name, links / name)
        except OSError:  # a file system without links
            shutil.copy2(new / name, links / name)
            flush(links / name)
        os.replace(links / name, target / name)
    flush(target)
    new.rename(links / _NEW)
    flush(target)


def _pending(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the complete folder that replaces files of `folder`, if there is one.

    A link, which no save creates, could name any folder of the user.
    """
    new = folder / _NEW
    if new.is_symlink():
        raise CheckpointError(f"{new}: is a link, and a save that was interrupted leaves a folder; delete the link")
    return new if new.is_dir() else None


def places_of(path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Return where a file of a folder may be, in the order to look.

    A save names it in the second place before it leaves the first.
    """
    folder = pathlib.Path(path)
    return folder / _NEW, folder


def has_files(path: str | os.PathLike[str], *names: str) -> bool:
    """Return whether a folder has these files, also during a save."""
    return all(any((place / name).is_file() for place in places_of(path)) for name in names)


def read_folder(
    path: str | os.PathLike[str],
    names: Collection[str] | None,
    read: Callable[[pathlib.Path], Result],
    advice: str = _EDITED,
    *,
    warns: bool = False,
) -> Result:
    """Return read(folder) after comparing files of the folder with its manifest; writes nothing.

    names: of the files; None: all that the manifest lists. Without a manifest none is checked.
    advice: what to do about a damaged file ("{folder}" is its folder), or ""; warns: warn that there is no manifest.
    If another process replaces the files meanwhile, they are read again.

    Raises CheckpointError naming the file that is missing or differs from the one that was written.
    """
    while True:
        version = _version(path)
        try:
            check_files(version[0], names, advice)
            result = read(version[0])
        except Exception:  # whatever libraries raise about files that are gone
            if _version(path) == version:
                raise
        else:
            if _version(path) == version:
                break
    if warns and version[1] is None:
        unchecked = f"whether {', '.join(names or ())} changed since could not be checked"
        warnings.warn(f"{version[0]} has no {MANIFEST}: {unchecked}; the next save writes one", stacklevel=3)
    return result


def _version(path: str | os.PathLike[str]) -> tuple[pathlib.Path, tuple[int, int] | None]:
    """Return the folder to read, and which file its manifest is: equal models have equal manifests.

    The folder is `path` or, if a save into it was killed as it replaced files, its new files.
    """
    whole = pathlib.Path(path)
    while True:
        folder, identity = _pending(whole) or whole, None
        with contextlib.suppress(OSError):
            about = os.stat(folder / MANIFEST)
            identity = about.st_ino, about.st_mtime_ns
        again = _pending(whole) or whole
        if again == folder:  # else the manifest may have got its name before the files that it lists
            return folder, identity


def check_files(folder: pathlib.Path, names: Collection[str] | None, advice: str = _EDITED) -> None:
    """Compare files of a folder with its manifest, if it has one; arguments and errors as in `read_folder`."""
    path = folder / MANIFEST
    if not path.exists():
        return
    advice = advice.format(folder=folder)
    marks = read_json(path, Manifest).files
    for name in names or ():
        if name not in marks:
            raise CheckpointError(
                f"{path}: does not list {name}, which is not from the same save" + (advice and f"; {advice}")
            )

    def check(name: str) -> None:
        expected, file = marks[name], folder / name
        with read_failures_named(file):
            size = file.stat().st_size
            found = mark_of(file) if size == expected.bytes else f"{size:,} bytes"
        if found != expected:
            raise CheckpointError(
                f"{file}: damaged, or changed after it was written: wanted {expected}, as in {MANIFEST}, found {found}"
                + (advice and f"; {advice}")
            )

    with ThreadPoolExecutor(8) as threads:  # a corpus has many large files
        list(threads.map(check, marks if names is None else names))


def write_manifest(folder: pathlib.Path) -> None:
    """Write the manifest of all files of a folder into it."""
    names = sorted(set(os.listdir(folder)) - {MANIFEST})
    with ThreadPoolExecutor(8) as threads:
        marks = dict(zip(names, threads.map(lambda name: mark_of(folder / name), names), strict=True))
    content = dataclasses.asdict(Manifest("elmo_fast manifest", 1, marks))
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def mark_of(path: pathlib.Path) -> FileMark:
    """Size and digest of a file."""
    return FileMark(sha256_of(path), path.stat().st_size)
