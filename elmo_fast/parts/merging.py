"""A folder of parts as the single file that one process would have written."""

import os
import pathlib

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.parts.plan import Plan, read_plan
from elmo_fast.parts.vectors import ElmoVectors
from elmo_fast.progress import Progress
from elmo_fast.token_files import FORMATS, NAMED, Contents, check_room, format_of


def merge_parts(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    file_format: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Writes the vectors of a folder of parts into one file, which appears when it is complete.

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
    file_format = format_of(output, file_format, plan.making.file_format)
    if place.resolve() in (target := pathlib.Path(output).resolve(), *target.parents):
        raise ElmoFastError(f"{os.fspath(output)}: lies in the folder of parts {place}; give an output outside it")
    vectors = ElmoVectors(place)
    contents = _contents(plan, vectors, file_format)
    check_room(output, contents.nbytes)
    with FORMATS[file_format](output, contents) as write:
        for number, part in enumerate(plan.parts):
            vectors.verify(number)
            for index in range(part.first, part.end):
                write(index, vectors[index])
            if progress is not None:
                progress(part.end, len(vectors))
    return len(vectors)


def _contents(plan: Plan, vectors: ElmoVectors, file_format: str) -> Contents:
    names = vectors.names() if file_format in NAMED else None
    keyed = plan.making.names == "keys"
    if keyed and file_format == "hdf5" != plan.making.file_format:
        raise ElmoFastError(
            f"{vectors.path}: was made for the format {plan.making.file_format}, for which names are not checked as "
            f"those of HDF5 datasets; merge into {plan.making.file_format}, or embed again with --format hdf5"
        )
    return Contents(
        lengths=vectors.lengths(),
        layers=plan.depth,
        width=plan.width,
        dtype=np.dtype(plan.making.dtype),
        metadata=plan.metadata,
        names=names,
        keyed=keyed,
    )
