"""Inputs of sentences behind one interface: text, FASTA, columns of tables; and their first reading."""

import abc
import contextlib
import csv
import glob
import itertools
import json
import os
import re
import warnings
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO, TypedDict, Unpack

import numpy as np

from elmo_fast.errors import ElmoFastError, check_choice, did_you_mean, quoted, require
from elmo_fast.op_choices import FORMATS_IN
from elmo_fast.text.checks import checked_sentences
from elmo_fast.text.conllu import conllu_rows
from elmo_fast.text.sentences import ending, files_matching, read_lines, rereadable
from elmo_fast.text.tokenizers import tokenizer as tokenizer_of


class Sentence(NamedTuple):
    """The tokens of a sentence, and its name: the text itself or, where the format has one, its key."""

    tokens: list[str]
    name: str


class Source(abc.ABC):
    """Sentences in an order that stays.

    name: what messages call the input; unit: what they call the place of a sentence ("line" 3); keyed: whether the
    format names its sentences.
    """

    name: str
    unit = "line"
    keyed = False

    @abc.abstractmethod
    def sentences(self) -> Iterator[Sentence]:
        """Yield all sentences, without tokens where a line is blank. Raises ElmoFastError, OSError."""

    def shown(self, sentence: Sentence) -> str:
        """Return what a list of results shows of a sentence."""
        return sentence.name

    def place(self, index: int) -> str:
        """Name the sentence of an index in messages: "line 3"."""
        return f"{self.unit} {index + 1}"

    def other_columns(self) -> Any:
        """Return the columns of a table besides the one of the sentences as a pyarrow.Table; None if there are none."""
        return None


class Lines(Source):
    """Sentences that lie in memory: lines of text, or lists of words."""

    def __init__(self, name: str, lines: Sequence[Any], tokenizer: str | None = None) -> None:
        self.name, self._lines, self._tokenize = name, lines, tokenizer_of(tokenizer)

    def sentences(self) -> Iterator[Sentence]:
        for line, words in zip(self._lines, checked_sentences(self._lines, self.name, self._tokenize), strict=True):
            yield Sentence(list(words), line if isinstance(line, str) else " ".join(line))


class File(Source):
    """A file; gzip and Zstandard are decompressed.

    name: of the file in messages, None for its path; tokenizer: one of TOKENIZERS; column: of a table. Reading raises
    as read_lines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        tokenizer: str | None = None,
        column: str = "text",
    ) -> None:
        self.path, self.name, self.column = path, name or os.fspath(path), column
        self._tokenize = tokenizer_of(tokenizer)


class TextFile(File):
    """A text file, one sentence per line."""

    def sentences(self) -> Iterator[Sentence]:
        for _, line in read_lines(self.path):
            yield Sentence(self._tokenize(line), line)


_OTHER = re.compile(r"[^A-Z*]")


class FastaFile(File):
    """A FASTA file: each record is a sentence, each residue a token, and the first word of its ">" line its name.

    The sequence may take several lines. Lower-case residues are read as upper-case ones; a "*" at the end marks the
    end of the translation and is dropped, another is a token; white space and blank lines are skipped.

    Reading raises ElmoFastError naming the line: another character, a gap ("-"), a record without name or residues,
    residues before the first ">"; and as read_lines does.
    """

    unit, keyed = "record", True

    def sentences(self) -> Iterator[Sentence]:
        header, key, residues = 0, "", list[str]()
        for index, line in itertools.chain(read_lines(self.path), [(-1, ">")]):
            if line.startswith(">"):
                if residues and residues[-1] == "*":
                    residues.pop()
                if residues:
                    yield Sentence(residues, key)
                elif key:
                    raise self._refusal(header, f"the record {key!r} has no residues; remove it")
                if index < 0:
                    return
                if not (words := line[1:].split(maxsplit=1)):
                    raise self._refusal(index, "'>' without a name; write '>NAME' above each sequence")
                header, key, residues = index, words[0], []
            elif line and not key:
                why = f"wanted a line '>NAME' before the first residue, found {line[:40]!r}"
                raise self._refusal(index, f"{why}; is this a FASTA file?")
            else:
                some = "".join(line.split()).upper()
                if bad := _OTHER.search(some):
                    why = f"the character {bad.group()!r} is no residue, which is a letter or '*'"
                    raise self._refusal(index, f"{why}; remove the gaps of an alignment")
                residues += some

    def _refusal(self, index: int, why: str) -> ElmoFastError:
        return ElmoFastError(f"{self.name}, line {index + 1}: {why}")


_SENT_ID = re.compile(r"#\s*sent_id\s*=\s*(.*\S)")


class ConlluFile(File):
    """A CoNLL-U file: the tokens are the forms of its syntactic words; comments, ranges and empty nodes are skipped.

    Sentences are named by their sent_id if the first one has it, else by their words.

    Raises ElmoFastError naming the line, as conllu_rows; also for a sent_id that is missing.
    """

    unit = "sentence"

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        super().__init__(path, name)
        self.keyed = bool(next((key for key, _ in self._sentences()), ""))

    def sentences(self) -> Iterator[Sentence]:
        for index, (key, words) in enumerate(self._sentences()):
            if self.keyed and not key:
                raise ElmoFastError(f"{self.name}, {self.place(index)}: has no sent_id, as the first sentence has")
            yield Sentence(words, key if self.keyed else " ".join(words))

    def shown(self, sentence: Sentence) -> str:
        return f"{sentence.name} | {' '.join(sentence.tokens)}" if self.keyed else sentence.name

    def _sentences(self) -> Iterator[tuple[str, list[str]]]:
        key = ""
        for _, block in itertools.groupby(read_lines(self.path), lambda each: not each[1]):
            lines = list(block)
            # Comments before the words of a sentence are its own, also where a blank line follows them.
            for _, line in itertools.takewhile(lambda each: each[1].startswith("#"), lines):
                key = found[1] if (found := _SENT_ID.match(line)) else key
            if words := [row[1] for row in conllu_rows(self.name, iter(lines), "form") if row is not None]:
                yield key, words
                key = ""


ROWS = 1024  # that are read at a time


class Column(File):
    """One column of a table: a row is a sentence, a string for the tokenizer or a list of tokens; null is empty.

    Reading raises ElmoFastError for a missing column, and for a row that is neither.
    """

    unit = "row"

    @abc.abstractmethod
    def records(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield all rows, each from the names of columns to values; ElmoFastError for one that cannot be read.

        columns: those that are needed, None for all; a format that has each row as a whole yields all.
        """

    def rows(self, columns: list[str] | None = None) -> Iterator[tuple[Sentence, dict[str, Any]]]:
        """Yield each row's sentence, and the row as `records` does."""
        for row, record in enumerate(self.records(columns)):
            if self.column not in record:
                self.check_column(list(record), f"{self.name}, {self.place(row)}")
            yield self.sentence(row, record[self.column]), record

    def sentences(self) -> Iterator[Sentence]:
        return (sentence for sentence, _ in self.rows([self.column]))

    def sentence(self, row: int, value: Any, column: str | None = None) -> Sentence:
        """Return a row's value as a sentence; column: where it is from, if not from this one, for errors."""
        if value is None:  # what an empty field is in CSV
            return Sentence([], "")
        if isinstance(value, str):
            return Sentence(self._tokenize(value), value.strip())
        if isinstance(value, list) and all(isinstance(token, str) and token for token in value):
            return Sentence(value, " ".join(value))
        raise ElmoFastError(
            f"{self.name}, {self.place(row)}, column {column or self.column!r}: wanted a string or a list of words, "
            f"none of them empty; found {quoted(value)}"
        )

    def other_columns(self) -> Any:
        """Return the other columns; values have Arrow's types, and what a record lacks is null."""
        arrow = require("pyarrow", "parquet", f"the other columns of {self.name}")
        records = list(self.records())
        names = dict.fromkeys(name for record in records for name in record if name != self.column)
        try:
            table = arrow.table({name: [record.get(name) for record in records] for name in names})
        except (arrow.ArrowException, OverflowError) as error:
            raise ElmoFastError(f"{self.name}: a column holds values of several types: {error}") from error
        return table if names else None

    def check_column(self, columns: Sequence[str], what: str | None = None) -> None:
        """Raise ElmoFastError unless the table has the column."""
        if self.column not in columns:
            advice = did_you_mean(self.column, columns) or "; choose one with column=NAME"
            raise ElmoFastError(
                f"{what or self.name} has no column {self.column!r}; it has: {', '.join(columns)}{advice}"
            )


class ParquetFiles(Column):
    """A column of a Parquet file, or of all .parquet files of a folder in the order of their names (extra parquet).

    Raises: MissingExtraError; ElmoFastError: a folder without such files; reading also: a damaged file.
    """

    def __init__(self, path: str | os.PathLike[str], *settings: Any) -> None:
        super().__init__(path, *settings)
        self._library = require("pyarrow.parquet", "parquet", f"reading {self.name}")
        folder = os.path.isdir(path)
        self.files = sorted(glob.glob(os.path.join(glob.escape(os.fspath(path)), "*.parquet"))) if folder else [path]
        if not self.files:
            raise ElmoFastError(
                f"the folder {self.name!r} contains no .parquet file; a folder may hold those, or a dataset that the "
                "library datasets saved; text files come one by one, or joined: cat FOLDER/* | elmo-fast embed - OUTPUT"
            )

    def records(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        from pyarrow import ArrowException

        for path in self.files:
            try:
                with self._library.ParquetFile(path) as file:
                    self.check_column(file.schema_arrow.names, os.fspath(path))
                    for batch in file.iter_batches(ROWS, columns=columns):
                        yield from batch.to_pylist()
            except (ArrowException, UnicodeDecodeError) as error:
                raise ElmoFastError(f"{os.fspath(path)}: damaged, or no Parquet file: {error}") from error

    def other_columns(self) -> Any:
        """Return the other columns; all files must have those of the first one."""
        from pyarrow import ArrowException, concat_tables

        tables: list[Any] = []
        for path in self.files:
            with self._library.ParquetFile(path) as file:
                names = [name for name in file.schema_arrow.names if name != self.column]
                rows = file.read(names).replace_schema_metadata()
            try:
                tables.append(rows.select(tables[0].column_names).cast(tables[0].schema) if tables else rows)
            except (ArrowException, KeyError) as error:
                problem = f"its columns are not those of {self.files[0]}"
                raise ElmoFastError(f"{os.fspath(path)}: {problem}: {error}") from error
        return concat_tables(tables) if tables[0].column_names else None


class HubDataset(Column):
    """A column of a Hugging Face dataset: a folder that `save_to_disk` wrote, or what `load_dataset` takes.

    split: which one, where there are several. Raises: MissingExtraError; ElmoFastError: no such dataset or split.
    """

    def __init__(self, path: str | os.PathLike[str], tokenizer: str | None, column: str, split: str) -> None:
        super().__init__(path, None, tokenizer, column)
        library = require("datasets", "datasets", f"reading the dataset {self.name}")
        try:
            saved = is_saved_dataset(self.name)
            dataset = library.load_from_disk(self.name) if saved else library.load_dataset(self.name)
        except (OSError, ValueError, library.exceptions.DatasetsError) as error:
            raise ElmoFastError(f"{self.name}: cannot be read as a dataset: {error}") from error
        if isinstance(dataset, library.DatasetDict):
            if split not in dataset:
                raise ElmoFastError(f"{self.name} has no split {split!r}; it has: {', '.join(dataset)}")
            dataset = dataset[split]
        self.check_column(dataset.column_names)
        self._dataset = dataset

    def records(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        return iter(self._dataset if columns is None else self._dataset.select_columns(columns))

    def other_columns(self) -> Any:
        """Return the dataset's other columns."""
        if self._dataset.column_names == [self.column]:
            return None
        return self._dataset.remove_columns([self.column]).with_format("arrow")[:].replace_schema_metadata()


class CsvFile(Column):
    """A column of a CSV file whose first line names the columns; all values are strings.

    A field may stand between double quotes, and then contain the delimiter, line breaks, and quotes written twice.
    Blank lines are skipped. Reading raises ElmoFastError naming the line: a record with more or fewer fields than the
    header, a quote that does not end; and as read_lines does.
    """

    delimiter = ","

    def records(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        lines = (line for _, line in read_lines(self.path, whole=True))
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        rows = filter(None, reader)
        try:
            header = next(rows, [])
            if len(set(header)) < len(header):
                raise ElmoFastError(f"{self.name}: two columns have the same name: {', '.join(header)}")
            if header:
                self.check_column(header)
            for fields in rows:
                if len(fields) != len(header):
                    raise ElmoFastError(
                        f"{self.name}, line {reader.line_num}: wanted {len(header)} fields, as in the header, "
                        f"found {len(fields)}; a field that contains the delimiter must stand between double quotes"
                    )
                yield dict(zip(header, fields, strict=True))
        except csv.Error as error:
            raise ElmoFastError(f"{self.name}, line {reader.line_num}: damaged CSV: {error}") from error


class TsvFile(CsvFile):
    """A column of a file as CsvFile, with tabs between its fields."""

    delimiter = "\t"


class JsonLines(Column):
    """A column of a file with a JSON object per line; blank lines are skipped.

    Reading raises ElmoFastError naming the line that is no object; and as read_lines does.
    """

    def records(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        for index, line in read_lines(self.path):
            if not line:
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ElmoFastError(f"{self.name}, line {index + 1}: no JSON: {error}") from error
            if not isinstance(record, dict):
                raise ElmoFastError(f"{self.name}, line {index + 1}: wanted a JSON object, found {quoted(line)}")
            yield record


def is_saved_dataset(path: str) -> bool:
    """Return whether a path is a folder that `save_to_disk` of the library datasets wrote."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_info.json", "dataset_dict.json"))


SOURCES: dict[str, Any] = {
    "text": TextFile,
    "fasta": FastaFile,
    "conllu": ConlluFile,
    "parquet": ParquetFiles,
    "csv": CsvFile,
    "tsv": TsvFile,
    "jsonl": JsonLines,
}


def detected_format(path: str | os.PathLike[str]) -> str:
    """Return the format of a path.

    It is "dataset" for a folder that the library datasets saved, "parquet" for a .parquet file and other folders,
    "csv", "tsv", "jsonl" and "conllu" for files of these names, also with .gz or .zst, else "text".
    """
    path = os.fspath(path)
    if is_saved_dataset(path):
        return "dataset"
    if path.endswith(".parquet") or os.path.isdir(path):
        return "parquet"
    kind = ending(path).removeprefix(".")
    return kind if kind in ("conllu", "csv", "tsv", "jsonl") else "text"


# Endings of files that are no text of sentences, and what to do.
_NO_TEXT = {
    ".fasta": "for FASTA, give format_in=fasta",
    ".faa": "for FASTA, give format_in=fasta",
    ".json": "for a JSON object per line, give format_in=jsonl",
}


class Reading(TypedDict, total=False):
    """Arguments of `opened_source` for tables; each has the default that it has there."""

    format_in: str | None
    column: str
    split: str


def input_format(path: str | os.PathLike[str], format_in: str | None = None) -> str:
    """Return the format of a file, `format_in` or that of its name; warn of a name that is no text's."""
    if format_in is None and (advice := _NO_TEXT.get(ending(path))):
        warnings.warn(
            f"{os.fspath(path)} is read as text, a sentence per line; {advice}; format_in=text omits this warning",
            stacklevel=5,
        )
    check_choice("format_in", format_in := format_in or detected_format(path), FORMATS_IN)
    return format_in


def files_to_read(pattern: str, format_in: str | None = None) -> list[tuple[str, str]]:
    """Return the path and the format of each file that `files_matching` finds, or of the one dataset."""
    if (format_in or detected_format(pattern)) == "dataset":
        return [(pattern, "dataset")]
    return [(path, input_format(path, format_in)) for path in files_matching(pattern)]


def check_tables(column: str, files: Sequence[tuple[str, str]]) -> None:
    """Raise ElmoFastError for a column if none of these files, each its path and format, is a table."""
    if column != "text" and not any(issubclass(SOURCES.get(kind, Column), Column) for _, kind in files):
        path, kind = files[0]
        raise ElmoFastError(
            f"column={column}: {path} is read as {kind}, which has no columns; leave it out, or name the format of a "
            "table, as format_in=csv does"
        )


def sentences_of(pattern: str, tokenizer: str | None = None, **reading: Unpack[Reading]) -> Iterator[Sentence]:
    """Yield the sentences of all files that a pattern names (`files_to_read`), without tokens where a line is blank."""
    for path, kind in files_to_read(pattern, reading.get("format_in")):
        with opened_source(path, tokenizer=tokenizer, **reading | {"format_in": kind}) as source:
            yield from source.sentences()


@contextlib.contextmanager
def opened_source(
    path: str | os.PathLike[str],
    format_in: str | None = None,
    *,
    column: str = "text",
    split: str = "train",
    tokenizer: str | None = None,
) -> Iterator[Source]:
    """Yield the sentences of an input; standard input and pipes are copied while the block runs.

    path: a file, "-" for standard input, a folder of .parquet files, or a dataset; format_in: one of FORMATS_IN; None:
    by `detected_format`; column, split: of tables; tokenizer: one of TOKENIZERS, not for FASTA and lists of tokens.
    Raises: ElmoFastError, OSError.
    """
    format_in = input_format(path, format_in)
    if format_in == "dataset":
        yield HubDataset(path, tokenizer, column, split)
        return
    name = "standard input" if path == "-" else os.fspath(path)
    with rereadable(path) as readable:
        split_already = format_in in ("fasta", "conllu")
        yield SOURCES[format_in](readable, name, *(() if split_already else (tokenizer, column)))


SHOWN_LINES = 5


@dataclass(frozen=True, eq=False)
class ScannedText:
    """Sentences that can be read again.

    lengths: tokens of each, [N] int64; lines: their names, if they were kept: a text's lines, the keys of a format that
    has them; source: what the sentences are read from.
    """

    lengths: np.ndarray[Any, np.dtype[np.int64]]
    lines: list[str] | None
    source: Source = field(repr=False)

    def __len__(self) -> int:
        return len(self.lengths)

    def sentences(self) -> Iterator[list[str]]:
        """Yield the sentences, read again; ElmoFastError if the text has changed."""
        for index, (sentence, length) in enumerate(itertools.zip_longest(self.source.sentences(), self.lengths)):
            if sentence is None or len(sentence.tokens) != length:
                raise ElmoFastError(f"{self.source.name} changed while being read, at {self.source.place(index)}")
            yield sentence.tokens


def scan(
    source: str | os.PathLike[str] | TextIO | Source,
    *,
    keep_lines: bool = False,
    as_keys: bool = False,
    tokenizer: str | None = None,
) -> ScannedText:
    """Read a text for the first time, and count its blank lines, which are sentences of length 0.

    Args:
        source: a text file, as for read_lines, an open text stream, or another Source.
        keep_lines: whether to keep the lines in memory.
        as_keys: whether the lines become names of HDF5 datasets.
        tokenizer: one of TOKENIZERS, for a file or a stream.

    Warns: how many lines are blank. Raises: ElmoFastError: no sentence, a line that cannot be a key; ElmoFastError and
    OSError as the source.
    """
    if isinstance(source, str | os.PathLike):
        source = TextFile(source, tokenizer=tokenizer)
    elif not isinstance(source, Source):
        lines = [str(line) for line in checked_sentences(source, "the input", str.strip, texts_only=True)]
        source = Lines(str(getattr(source, "name", "the input")), lines, tokenizer)
    lines, lengths = list[str](), array("q")
    for sentence in valid_sentences(source, as_keys):
        lengths.append(len(sentence.tokens))
        if keep_lines:
            lines.append(sentence.name)
    return ScannedText(np.array(lengths, np.int64), lines if keep_lines else None, source)


def valid_sentences(source: Source, as_keys: bool) -> Iterator[Sentence]:
    """Yield all sentences of a source; at the end warn how many were blank, and what the output has for them.

    Raises ElmoFastError if there is no sentence or, `as_keys`, at one whose name cannot be that of an HDF5 dataset.
    """
    count, blank, seen = 0, list[int](), dict[str, int]()
    unit = source.unit
    advice = "rename it, or choose another format of the output" if source.keyed else "leave out use_sentence_keys"
    for index, sentence in enumerate(source.sentences()):
        count, key = index + 1, sentence.name
        if not sentence.tokens:
            blank.append(count)
        elif as_keys:
            if "/" in key or "\0" in key or key in ("", "."):
                raise ElmoFastError(
                    f"{source.name}, {source.place(index)}: {key[:60]!r} cannot be the name of a dataset (in HDF5 '/' "
                    f"separates groups, '.' is the group itself and NUL ends a name); {advice}"
                )
            if seen.setdefault(key, index) != index:
                what = "have the same name" if source.keyed else "are the same sentence"
                raise ElmoFastError(
                    f"{source.name}: {unit}s {seen[key] + 1} and {count} {what}, but names must differ; {advice}"
                )
        yield sentence
    if len(blank) == count:
        why = f"every {unit} is blank: it" if count else "it"
        raise ElmoFastError(f"{source.name} is empty: {why} contains no sentence")
    if blank:
        lines = ", ".join(map(str, blank[:SHOWN_LINES])) + (", ..." if len(blank) > SHOWN_LINES else "")
        which, each = (f"{unit}s", "each") if len(blank) > 1 else (unit, "it")
        what = "no vectors" if as_keys else "an empty array (with pool: zeros)"
        warnings.warn(
            f"{source.name}: {len(blank):,} blank {which} ({unit} {lines}): the output has {what} for {each}",
            stacklevel=4,
        )
