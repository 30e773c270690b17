"""A text to a file of the vectors of all its tokens, written as they come."""

import json
import os
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.sentence_vectors import embed_batches
from elmo_fast.progress import Progress
from elmo_fast.text import SurveyedText
from elmo_fast.token_files import FORMATS, Contents, check_room

OUTPUT_FORMATS = ("all", "top", "average")
DTYPES = ("float32", "float16")


def embed_text(
    bilm: BiLM,
    text: SurveyedText,
    path: str | os.PathLike[str],
    output_format: str = "all",
    *,
    file_format: str = "hdf5",
    dtype: str = "float32",
    batch_size: int = 64,
    max_tokens: int | None = None,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
    model: str = "",
    progress: Progress | None = None,
) -> None:
    """Writes the vectors of a surveyed text; arguments as ElmoEmbedder.embed_file's.

    text: with its lines, where sentence_to_index or the keys are wanted; model: its name, for the file's metadata
    """
    wanted = "as_keys" if use_sentence_keys else "keep_lines"
    remembers = file_format == "hdf5" and not forget_sentences
    if (use_sentence_keys and not text.as_keys) or (remembers and text.lines is None):
        raise ElmoFastError(f"{text.name} must be surveyed with {wanted}=True, as the file is to hold its sentences")
    layers = bilm.num_layers if output_format == "all" else 0
    metadata = {
        "model": model,
        "layers": output_format,
        "precision": bilm._elmo_lstm.precision,
        "stateful": str(bilm.stateful).lower(),
    }
    contents = _contents(text, layers, bilm.get_output_dim(), dtype, metadata, forget_sentences, use_sentence_keys)
    check_room(path, contents.nbytes, "; output_format average or top and dtype float16 take less")
    done, total = 0, int(text.lengths.sum())
    with FORMATS[file_format](path, contents) as write:
        for batch in embed_batches(
            bilm, text.sentences(), output_format, side_by_side=not layers, stateful=bilm.stateful,
            batch_size=batch_size, max_tokens=max_tokens, name=lambda index: f"line {index + 1}",
        ):  # fmt: skip
            for index, vectors in zip(batch.indices, batch.vectors, strict=True):
                write(index, _of_dtype(vectors, contents.dtype, f"line {index + 1} of {text.name}"))
            done += sum(map(len, batch.sentences))
            if progress is not None:
                progress(done, total)


def check_formats(output_format: str, file_format: str, dtype: str, use_sentence_keys: bool) -> None:
    """Raises ElmoFastError for arguments of embed_text that are unknown or do not go together."""
    for name, value, known in (
        ("output_format", output_format, OUTPUT_FORMATS),
        ("file_format", file_format, FORMATS),
        ("dtype", dtype, DTYPES),
    ):
        if value not in known:
            raise ElmoFastError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    if use_sentence_keys and file_format != "hdf5":
        raise ElmoFastError(f"use_sentence_keys needs the format hdf5; got {file_format}")


def _contents(
    text: SurveyedText, layers: int, width: int, dtype: str, metadata: dict[str, str], forget: bool, as_keys: bool
) -> Contents:
    from elmo_fast import __version__

    lines = text.lines or []

    def sentence_to_index() -> str:
        """Of equal sentences the last one's."""
        return json.dumps({line: str(index) for index, line in enumerate(lines)})

    return Contents(
        lengths=text.lengths,
        layers=layers,
        width=width,
        dtype=np.dtype(dtype),
        metadata=metadata | {"tokenizer": "whitespace", "writer": f"elmo_fast {__version__}"},
        keys=lines.__getitem__ if as_keys else str,
        closing=None if as_keys or forget else sentence_to_index,
    )


def _of_dtype(vectors: np.ndarray[Any, Any], dtype: Any, what: str) -> np.ndarray[Any, Any]:
    """The vectors in the dtype of the file; ElmoFastError when numbers are no longer finite."""
    with np.errstate(over="ignore"):
        rounded = vectors.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        hint = "; dtype float32 holds larger numbers" if dtype == np.float16 else ""
        raise ElmoFastError(f"{what} gave vectors that are not finite{hint}")
    return rounded
