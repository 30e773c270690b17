"""What embed_file writes of a text: its settings, the contents of the file, vectors in the dtype of the file."""

from typing import Any

import numpy as np

from elmo_fast import __version__
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.modules.bilm import BiLM
from elmo_fast.text import SurveyedText
from elmo_fast.token_files import FORMATS, Contents

OUTPUT_FORMATS = ("all", "top", "average")
DTYPES = ("float32", "float16")


def check_formats(output_format: str, file_format: str, dtype: str, use_sentence_keys: bool) -> None:
    """Raises ElmoFastError for arguments of embed_file that are unknown or do not go together."""
    check_choice("output_format", output_format, OUTPUT_FORMATS)
    check_choice("file_format", file_format, FORMATS)
    check_choice("dtype", dtype, DTYPES)
    if use_sentence_keys and file_format != "hdf5":
        raise ElmoFastError(f'use_sentence_keys needs file_format="hdf5"; got {file_format!r}')


def text_contents(
    text: SurveyedText, bilm: BiLM, model: str, output_format: str, dtype: str, *, as_keys: bool, remembers: bool
) -> Contents:
    """What the file of a text's vectors is to hold.

    model: its name, for the metadata; as_keys: whether the sentences name the datasets; remembers: whether the file
    stores the sentences. Raises ElmoFastError if the text was surveyed without the lines for these.
    """
    if (as_keys and not text.as_keys) or (remembers and text.lines is None):
        wanted = "as_keys" if as_keys else "keep_lines"
        raise ElmoFastError(f"{text.name} must be surveyed with {wanted}=True, as the file is to hold its sentences")
    return Contents(
        lengths=text.lengths,
        layers=bilm.num_layers if output_format == "all" else 0,
        width=bilm.get_output_dim(),
        dtype=np.dtype(dtype),
        metadata={
            "model": model,
            "layers": output_format,
            "precision": bilm._elmo_lstm.precision,
            "stateful": str(bilm.stateful).lower(),
            "tokenizer": "whitespace",
            "writer": f"elmo_fast {__version__}",
        },
        names=text.lines if as_keys or remembers else None,
        keyed=as_keys,
    )


def finite(vectors: np.ndarray[Any, Any], dtype: Any, what: str) -> np.ndarray[Any, Any]:
    """The vectors in the dtype of the file; ElmoFastError if numbers are not finite in it."""
    with np.errstate(over="ignore"):
        rounded = vectors.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        hint = "; give dtype float32, which holds larger numbers" if dtype == np.float16 else ""
        raise ElmoFastError(f"{what} gave vectors that are not finite{hint}")
    return rounded
