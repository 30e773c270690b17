"""A folder of parts: each part is a folder of its own, which appears whole by one rename, or not at all."""

import contextlib
import dataclasses
import errno
import os
import pathlib
from collections.abc import Iterator

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import flush, write_json
from elmo_fast.json_files import read_json
from elmo_fast.manifest import MANIFEST, FileMark, Manifest, NewFiles, check_mark, check_written, mark_of
from elmo_fast.parts.claims import CLAIMS
from elmo_fast.parts.plan import PLAN, name_of
from elmo_fast.workplace import NO_ROOM, remove_leftovers, workplace

# The files of a part.
VECTORS, NAMES = "vectors.safetensors", "names.json"


@contextlib.contextmanager
def made_folder(folder: pathlib.Path) -> Iterator[None]:
    """Creates the folder, or refuses one that holds other things; where nothing came to be in it, it goes again.

    Raises ElmoFastError, OSError.
    """
    if folder.exists() and not folder.is_dir():
        raise ElmoFastError(f"{folder}: is a file; several processes write a folder of parts: give another output")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    others = [name for name in os.listdir(folder) if name not in (PLAN, CLAIMS) and not name.startswith(f".{PLAN}")]
    if others and not (folder / PLAN).exists():
        raise ElmoFastError(f"{folder}: holds {others[0]!r} and no {PLAN}; give an empty or a new output folder")
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()


def done_parts(folder: pathlib.Path) -> set[str]:
    """The names of the parts that are there."""
    return {name for name in os.listdir(folder) if name.startswith("part-")}


@contextlib.contextmanager
def writing_part(folder: pathlib.Path, number: int) -> Iterator[pathlib.Path]:
    """Yields an empty folder; if the block succeeds it becomes the part, with a manifest of its files.

    Where another process has written the part meanwhile, its files stay. Raises OSError naming the part if the disk is
    full.
    """
    target = folder / name_of(number)
    try:
        with workplace(target) as work:
            new = NewFiles(work / "new")
            new.folder.mkdir()
            yield new.folder
            new.write_manifest()
            for name in os.listdir(new.folder):
                flush(new.folder / name)
            flush(new.folder)
            try:
                new.folder.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # a rename replaces no folder that holds files
                    raise
            flush(folder)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise


def finish(folder: pathlib.Path, parts: int) -> None:
    """Removes what killed processes left beside the parts, and writes the manifest of all files.

    Raises ElmoFastError naming a part's file that is not as it was written.
    """
    remove_leftovers(folder, ".part-")
    files = {PLAN: mark_of(folder / PLAN)}
    for number in range(parts):
        for name, mark in read_json(folder / name_of(number) / MANIFEST, Manifest).files.items():
            path = folder / name_of(number) / name
            found = path.stat().st_size if path.exists() else 0
            if found != mark.bytes:
                raise ElmoFastError(
                    f"{path}: damaged: wanted {mark.bytes:,} bytes, found {found:,}; delete the folder {path.parent} "
                    "and run the same command again"
                )
            files[f"{name_of(number)}/{name}"] = mark
    told = Manifest("elmo_fast manifest", 1, files)
    with contextlib.suppress(CheckpointError):  # there is none, or a damaged one
        if read_json(folder / MANIFEST, Manifest) == told:
            return
    write_json(folder / MANIFEST, dataclasses.asdict(told))


def check_complete(folder: pathlib.Path, parts: int) -> dict[str, FileMark]:
    """The digests of all files, by name. Raises ElmoFastError if parts are missing, or the plan was changed."""
    found = done_parts(folder)
    there = sum(name_of(number) in found for number in range(parts))
    if there < parts or not (folder / MANIFEST).exists():
        raise ElmoFastError(
            f"{folder}: {there} of {parts} parts are there; run the same `elmo-fast embed` command again, which resumes"
        )
    check_written(folder, [PLAN])
    return read_json(folder / MANIFEST, Manifest).files


def check_part(folder: pathlib.Path, files: dict[str, FileMark], number: int) -> None:
    """Compares a part's files with their digests, of check_complete. Raises CheckpointError naming a damaged one."""
    part = name_of(number)
    advice = f"delete the folder {folder / part} and run the same `elmo-fast embed` command again"
    for name in (VECTORS, NAMES):
        if (wanted := files.get(f"{part}/{name}")) is not None:
            check_mark(folder / part / name, wanted, advice)
