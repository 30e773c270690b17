"""Vectors for TensorBoard's projector: PCA, t-SNE and UMAP in a browser."""

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_file import atomic_file, write_text
from elmo_fast.errors import ElmoFastError, not_a_string

TENSORS, METADATA, CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"


def write_projector(
    words: Sequence[str],
    matrix: npt.NDArray[Any],
    folder: str | os.PathLike[str],
    columns: Mapping[str, Sequence[str]] | None = None,
    name: str = "words",
) -> pathlib.Path:
    """Write tensors.tsv, metadata.tsv and projector_config.pbtxt to a folder for `tensorboard --logdir`.

    projector.tensorflow.org loads the first two. Every float32 is written with enough digits to read it back exactly.

    Args:
        words: N labels.
        matrix: their vectors, [N, D], finite.
        folder: created if missing; files of these names in it are replaced.
        columns: additional columns of the metadata: name -> N strings.
        name: of the tensor.

    Raises: ElmoFastError for shapes that do not match, or a label with a tab or a line break.
    """
    not_a_string(words, "words", "a list of words")
    if matrix.ndim != 2 or len(matrix) != len(words) or not len(words) or not np.isfinite(matrix).all():
        what = f"matrix must be [{len(words)}, D], a row per word, one or more, of finite numbers"
        raise ElmoFastError(f"{what}; got {list(matrix.shape)}, finite: {np.isfinite(matrix).all()}")
    table = {"word": words, **(columns or {})}
    for column, texts in table.items():
        if len(texts) != len(words):
            raise ElmoFastError(f"column {column!r} must have {len(words)} texts, one per word; got {len(texts)}")
        for row, text in enumerate([column, *texts]):
            if not text.strip() or re.search(r"[\t\n\r]", text):
                what = "must be a text without tabs and line breaks, not empty"
                raise ElmoFastError(f"column {column!r}, row {row} {what}; got {text!r}")
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with atomic_file(place / TENSORS) as aside:
        np.savetxt(aside, matrix, fmt="%.9g", delimiter="\t")
    # One column has no header: the projector would take it for a word.
    rows = [*([] if len(table) == 1 else [tuple(table)]), *zip(*table.values(), strict=True)]
    write_text(place / METADATA, "".join("\t".join(row) + "\n" for row in rows))
    # The text form of TensorBoard's ProjectorConfig; JSON's strings are its strings.
    entries = {"tensor_name": name, "tensor_path": TENSORS, "metadata_path": METADATA}
    lines = "".join(f"  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entries.items())
    write_text(place / CONFIG, f"embeddings {{\n{lines}}}\n")
    return place
