"""The vectors that `embed` wrote, read one sentence at a time, or merged into one file."""

import bisect
import functools
import operator
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_folder import check_files
from elmo_fast._io.fields import read_json
from elmo_fast._runtime.progress import Progress
from elmo_fast.embed.parts.plan import PLAN, Plan, name_of, read_plan
from elmo_fast.embed.token_files import FORMATS, NAMED, FileLayout, FlatFile, check_room, format_of, names_in, read_flat
from elmo_fast.errors import CheckpointError, ElmoFastError

Rows = npt.NDArray[Any]
# The files of a part, and the key in the first one's metadata of `Plan.mark`.
VECTORS, NAMES, MARK = "vectors.safetensors", "names.json", "part"
OPEN_PARTS = 256  # that stay mapped


class ElmoVectors(Sequence[Rows]):
    """The vectors of a text's sentences, by their number from 0.

    Each is [L, T, 2D], float32 or float16, of all layers, else [T, 2D].

    The files are memory-mapped: opening reads no vectors, and a sentence reads its own.

    Args:
        path: a folder of parts, or a file of the format safetensors, that `elmo-fast embed` wrote.

    Raises: ElmoFastError: parts are missing, the file is another one; CheckpointError: a file is damaged or truncated.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self._plan: Plan | None = None
        self._part: Callable[[int], FlatFile]
        if self.path.is_dir():
            self._plan = plan = read_plan(self.path)
            there, parts = done_parts(self.path), len(plan.parts)
            if (count := sum(name_of(number) in there for number in range(parts))) < parts:
                raise ElmoFastError(
                    f"{self.path}: {count} of {parts} parts are there; run the same `elmo-fast embed` command again, "
                    "which resumes"
                )
            self._firsts, self._count = [part.first for part in plan.parts], plan.sentences
            self._part = functools.lru_cache(OPEN_PARTS)(functools.partial(read_part, self.path, plan))
        else:
            file = read_flat(self.path)
            self._firsts, self._count, self._part = [0], len(file.offsets) - 1, lambda number: file
        self.metadata = {name: value for name, value in self._part(0).metadata.items() if name != MARK}

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process the files are mapped again."""
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """Return the vectors of a sentence; of a slice a list of them. Views of the file, which cannot be written."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        number = operator.index(index)
        if not -self._count <= number < self._count:
            raise IndexError(f"sentence {number}: there are {self._count}")
        number %= self._count
        part = bisect.bisect_right(self._firsts, number) - 1
        file, row = self._part(part), number - self._firsts[part]
        rows = file.embeddings[file.offsets[row] : file.offsets[row + 1]]
        return rows.swapaxes(0, 1) if self.metadata.get("layers") == "all" else rows[:, 0]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the tokens of each sentence, [N] int64."""
        return np.concatenate([np.diff(self._part(number).offsets) for number in range(len(self._firsts))])

    def names(self) -> list[str] | None:
        """Return the sentences, or their keys; None if they were left out (--forget_sentences)."""
        if self._plan is None:
            return names_in(self.path)
        if self._plan.making.names == "none":
            return None
        files = (self.path / name_of(number) / NAMES for number in range(len(self._firsts)))
        return [name for file in files for name in read_json(file, list[str])]

    def verify(self, part: int | None = None) -> None:
        """Compare the files of a part, or of all, with the digests of when they were written. Raises CheckpointError.

        A single file has none.
        """
        advice = "delete the folder {folder} and run the same `elmo-fast embed` command again"
        for number in range(len(self._firsts)) if part is None else [part]:
            if self._plan is not None:
                check_files(self.path / name_of(number), None, advice)


def done_parts(folder: pathlib.Path) -> set[str]:
    """Return the names of the existing parts."""
    return {name for name in os.listdir(folder) if name.startswith("part-")}


def read_part(folder: pathlib.Path, plan: Plan, number: int) -> FlatFile:
    """Open the vectors of a part. Raises CheckpointError if they are damaged or not those of this part."""
    path, part = folder / name_of(number) / VECTORS, plan.parts[number]
    file = read_flat(path)
    if (count := len(file.offsets) - 1) != part.sentences:
        raise CheckpointError(f"{path}: damaged: wanted {part.sentences} sentences, as in {PLAN}, found {count}")
    if file.offsets[-1] != part.tokens or file.metadata.get(MARK) != plan.mark(number):
        raise CheckpointError(
            f"{path}: its vectors are not of {plan.range_of(number)}, which {PLAN} has there; delete the folder "
            f"{path.parent} and run the same `elmo-fast embed` command again"
        )
    return file


def merge_parts(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    file_format: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the vectors of a folder of parts into one file, which appears when it is complete.

    Args:
        folder: of parts, all of which are there.
        output: the file to write.
        file_format: as in ElmoEmbedder.embed_file; None: as the name of the output says, else the one that the parts
            were made for.
        progress: called after each part with the sentences done and the total.

    Returns: the number of sentences. Raises: ElmoFastError: parts are missing, a damaged part, a full disk, a format
        that cannot hold the sentences' names; OSError.
    """
    place = pathlib.Path(folder)
    plan = read_plan(place)
    if place.resolve() in (target := pathlib.Path(output).resolve(), *target.parents):
        raise ElmoFastError(f"{os.fspath(output)}: lies in the folder of parts {place}; give an output outside it")
    file_format = format_of(output, file_format, plan.making.file_format)
    vectors = ElmoVectors(place)
    keyed = plan.making.names == "keys"
    if keyed and file_format == "hdf5" != plan.making.file_format:
        raise ElmoFastError(
            f"{place}: was made for the format {plan.making.file_format}, for which names are not checked as those of "
            f"HDF5 datasets; merge into {plan.making.file_format}, or embed again with --format hdf5"
        )
    layout = FileLayout(
        lengths=vectors.lengths(),
        layers=plan.depth,
        width=plan.width,
        dtype=np.dtype(plan.making.dtype),
        metadata=plan.metadata,
        names=vectors.names() if file_format in NAMED else None,
        keyed=keyed,
    )
    check_room(output, layout.nbytes)
    with FORMATS[file_format](output, layout) as write:
        for number, part in enumerate(plan.parts):
            vectors.verify(number)
            for index in range(part.first, part.end):
                write(index, vectors[index])
            if progress is not None:
                progress(part.end, len(vectors))
    return len(vectors)
