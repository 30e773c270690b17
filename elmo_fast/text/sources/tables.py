"""Columns of tables: Parquet files and Hugging Face datasets."""

import abc
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elmo_fast.errors import ElmoFastError, require
from elmo_fast.text.sources.base import Sentence, Source

ROWS = 1024  # that are read at a time


class Column(Source):
    """One column of a table: a row is a sentence, a string to be split at white space or a list of tokens.

    Reading raises ElmoFastError for a column that is not there, and for a row that is neither.
    """

    unit = "row"

    def __init__(self, name: str, column: str) -> None:
        self.name, self.column = name, column

    @abc.abstractmethod
    def values_from(self, row: int) -> Iterator[Any]:
        """The column's values from that row on."""

    def sentences(self) -> Iterator[Sentence]:
        return self.sentences_from(0)

    def sentences_from(self, index: int) -> Iterator[Sentence]:
        """The sentences from that row on; rows before it are skipped, not read."""
        return (self._sentence(row, value) for row, value in enumerate(self.values_from(index), index))

    def _sentence(self, row: int, value: Any) -> Sentence:
        if isinstance(value, str):
            return Sentence(value.split(), value.strip())
        if isinstance(value, list) and all(isinstance(token, str) and token for token in value):
            return Sentence(value, " ".join(value))
        raise ElmoFastError(
            f"{self.name}, {self.place(row)}, column {self.column!r}: wanted a string or a list of words, none of them "
            f"empty; found {value!r:.60}"
        )

    def check_column(self, columns: Sequence[str], what: str | None = None) -> None:
        """Raises ElmoFastError unless the table has the column."""
        if self.column not in columns:
            raise ElmoFastError(f"{what or self.name} has no column {self.column!r}; it has: {', '.join(columns)}")


class ParquetFiles(Column):
    """A column of a Parquet file, or of all .parquet files of a folder in the order of their names (extra parquet).

    Raises: MissingExtraError; ElmoFastError: a folder without such files; reading also: a damaged file.
    """

    def __init__(self, path: str | os.PathLike[str], column: str = "text", name: str | None = None) -> None:
        super().__init__(name or os.fspath(path), column)
        self._library = require("pyarrow.parquet", "parquet", f"reading {self.name}")
        folder = os.path.isdir(path)
        self.files = sorted(glob.glob(os.path.join(glob.escape(os.fspath(path)), "*.parquet"))) if folder else [path]
        if not self.files:
            raise ElmoFastError(f"the folder {self.name!r} contains no .parquet file")

    def values_from(self, row: int) -> Iterator[Any]:
        """The values from that row on; groups of rows before it are not read."""
        from pyarrow import ArrowException

        for path in self.files:
            try:
                with self._library.ParquetFile(path) as file:
                    self.check_column(file.schema_arrow.names, os.fspath(path))
                    yield from self._values(file, row)
                    row = max(0, row - file.metadata.num_rows)
            except ArrowException as error:
                raise ElmoFastError(f"{os.fspath(path)}: damaged, or no Parquet file: {error}") from error

    def _values(self, file: Any, skipped: int) -> Iterator[Any]:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if skipped < rows:
                for batch in file.iter_batches(ROWS, row_groups=[group], columns=[self.column]):
                    yield from batch.column(0)[skipped:].to_pylist()
                    skipped = max(0, skipped - len(batch))
            else:
                skipped -= rows


class HubDataset(Column):
    """A column of a Hugging Face dataset (extra datasets): a folder that `save_to_disk` wrote, or what `load_dataset`
    takes: a name on the hub, a folder of files.

    split: which one, where there are several. Raises: MissingExtraError; ElmoFastError: no such dataset or split.
    """

    def __init__(self, path: str | os.PathLike[str], column: str = "text", split: str = "train") -> None:
        super().__init__(os.fspath(path), column)
        library = require("datasets", "datasets", f"reading the dataset {self.name}")
        self._dataset = self._opened(library, split)
        self.check_column(self._dataset.column_names)

    def _opened(self, library: Any, split: str) -> Any:
        try:
            saved = is_saved_dataset(self.name)
            found = library.load_from_disk(self.name) if saved else library.load_dataset(self.name)
        except (OSError, ValueError, library.exceptions.DatasetsError) as error:
            raise ElmoFastError(f"{self.name}: cannot be read as a dataset: {error}") from error
        if not isinstance(found, library.DatasetDict):
            return found
        if split not in found:
            raise ElmoFastError(f"{self.name} has no split {split!r}; it has: {', '.join(found)}")
        return found[split]

    def values_from(self, row: int) -> Iterator[Any]:
        rows: Iterable[int] = range(row, len(self._dataset), ROWS)
        return (value for start in rows for value in self._dataset[start : start + ROWS][self.column])


def is_saved_dataset(path: str) -> bool:
    """Whether a path is a folder that `save_to_disk` of the library datasets wrote."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_info.json", "dataset_dict.json"))
