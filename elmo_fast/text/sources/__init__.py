"""Inputs of sentences: one interface, a file for each kind."""

import contextlib
import os
import warnings
from collections.abc import Iterator

from elmo_fast.errors import check_choice
from elmo_fast.text.sentences import rereadable
from elmo_fast.text.sources.base import Lines, Sentence, Source
from elmo_fast.text.sources.fasta import FastaFile
from elmo_fast.text.sources.tables import HubDataset, ParquetFiles, is_saved_dataset
from elmo_fast.text.sources.text_file import TextFile

FORMATS_IN = ("text", "fasta", "parquet", "dataset")

__all__ = [
    "FORMATS_IN",
    "FastaFile",
    "HubDataset",
    "Lines",
    "ParquetFiles",
    "Sentence",
    "Source",
    "TextFile",
    "detected_format",
    "opened_source",
]


def detected_format(path: str | os.PathLike[str]) -> str:
    """ "dataset" for a folder that the library datasets saved, "parquet" for a .parquet file and other folders, else
    "text".
    """
    path = os.fspath(path)
    if is_saved_dataset(path):
        return "dataset"
    return "parquet" if path.endswith(".parquet") or os.path.isdir(path) else "text"


def _named_fasta(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst").endswith((".fasta", ".faa"))


@contextlib.contextmanager
def opened_source(
    path: str | os.PathLike[str], format_in: str | None = None, *, column: str = "text", split: str = "train"
) -> Iterator[Source]:
    """The sentences of an input; what can be read only once is copied while the block runs.

    path: a file, "-" for standard input, a folder of .parquet files, or a dataset; format_in: one of FORMATS_IN; None:
    by `detected_format`; column, split: of tables. Raises: ElmoFastError, OSError.
    """
    if format_in is None and _named_fasta(path):
        warnings.warn(
            f"{os.fspath(path)} is read as text, a sentence per line; if it is FASTA, as its name says, give "
            "format_in fasta, else format_in text",
            stacklevel=4,
        )
    format_in = format_in or detected_format(path)
    check_choice("format_in", format_in, FORMATS_IN)
    if format_in == "dataset":
        yield HubDataset(path, column, split)
        return
    if os.path.isdir(path):
        yield ParquetFiles(path, column)
        return
    name = "standard input" if path == "-" else os.fspath(path)
    with rereadable(path) as readable:
        if format_in == "parquet":
            yield ParquetFiles(readable, column, name)
        else:
            yield (FastaFile if format_in == "fasta" else TextFile)(readable, name)
