"""Checks before any work that no output is also an input or another output, and that its folder exists."""

import contextlib
import glob
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import replaces

# The options of all commands that name inputs: a text (a file, a folder or a glob), or a file or folder.
TEXTS = ("train_prefix", "test_prefix")
READ = (
    "input_file", "corpus", "text", "word_file", "vocab_file", "vectors", "analogies", "pairs", "path", "config",
    "options_file", "weight_file", "softmax_file", "model", "save_dir", "source", "run", "also",
)  # fmt: skip
# Outputs that are folders, which are created.
MADE = ("out_dir",)
# What `embed` reads of a folder that is its input: Parquet files, a dataset that was saved.
TABLES = ("*.parquet", "*.arrow")
# What commands read from the folder of a model, a run or a task, besides the model.
KEPT = ("config.json", "metrics.jsonl", "vocab.txt", "vocab.txt.gz", "labels.json", "words.json", "results.json")


def check_outputs(arguments: Any, writes: Mapping[str, tuple[str, ...]]) -> None:
    """Raises ElmoFastError if an output is a file that is read, is another output, or is in a missing folder.

    writes: option -> the names of the files if it names their folder, () if it names the file itself
    """
    for name in (name for name, files in writes.items() if not files and name not in MADE):
        for value in _values(arguments, name):
            folder = os.path.dirname(value) or "."
            if not os.path.isdir(folder):
                raise ElmoFastError(f"{name} {value!r}: there is no folder {folder!r}; create it first")
    outputs = [(name, file) for name in writes for file in _written(arguments, name, writes[name])]
    inputs = [(name, file) for name in (*TEXTS, *READ) if name not in writes for file in _read(arguments, name)]
    for (name, file), (other, path) in [*itertools.product(outputs, inputs), *itertools.combinations(outputs, 2)]:
        if replaces(file, path):
            what = "also written" if other in writes else "read"
            where = "holds" if os.path.isdir(file) else "is the same file as"
            raise ElmoFastError(f"{name} {file!r} {where} {other} {path!r}, which is {what}; choose another output")


def _values(arguments: Any, name: str) -> list[str]:
    value = getattr(arguments, name, None)
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each]


def _written(arguments: Any, name: str, files: tuple[str, ...]) -> list[str]:
    return [path for value in _values(arguments, name) for path in ([os.path.join(value, f) for f in files] or [value])]


def _read(arguments: Any, name: str) -> Iterator[str]:
    from elmo_fast.text import files_matching

    for value in _values(arguments, name):
        if name in TEXTS:
            with contextlib.suppress(ElmoFastError):  # a missing file is reported where it is read
                yield from files_matching(value)
        elif os.path.isdir(value):
            yield from _files_of(value)
        else:
            yield value


def _files_of(folder: str) -> Iterator[str]:
    from elmo_fast.checkpoints import model_files

    with contextlib.suppress(CheckpointError):  # as above
        yield from map(os.fspath, model_files(folder))
    yield from (path for name in KEPT if os.path.isfile(path := os.path.join(folder, name)))
    yield from (path for name in TABLES for path in glob.glob(os.path.join(glob.escape(folder), name)))
