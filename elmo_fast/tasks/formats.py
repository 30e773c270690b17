"""Files of labelled sentences: CoNLL-U, CoNLL's columns, `label<TAB>sentence`, and tables."""

import contextlib
import csv
import io
import itertools
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from elmo_fast._io.atomic_file import writing
from elmo_fast._io.compressed import reading
from elmo_fast.errors import ElmoFastError, check_choice, did_you_mean
from elmo_fast.text import opened_source, read_lines
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.conllu import CONLLU_COLUMNS, Column, Lines, Row, conllu_column, conllu_rows, filled, misfit
from elmo_fast.text.sentences import ending
from elmo_fast.text.sources import Column as TableColumn
from elmo_fast.text.tokenizers import Tokenize

# CoNLL-U's value of a column that is not annotated; in the other columns it is a value: no feature, no remark.
UNSPECIFIED, MAY_BE_EMPTY = "_", ("feats", "deps", "misc")
PER_WORD, TABLES = ("conllu", "columns"), ("csv", "jsonl", "parquet")
TASK_FORMATS = ("auto", *PER_WORD, "tsv", *TABLES, "text")
TEXT_COLUMN, LABEL_COLUMN, PREDICTED = "text", "label", "predicted"
SUFFIXES = {
    ".conllu": "conllu",
    ".tsv": "tsv",
    **{f".{name}": name for name in TABLES},
    **dict.fromkeys((".conll", ".conll2003", ".bio", ".iob", ".iob2", ".iobes", ".bioes", ".col", ".txt"), "columns"),
}
_LINE_ENDS = re.compile("(\r\r\n|\r\n|\r|\n)")  # as read_lines splits
_BLANKS = re.compile(r"[ \t]+")
_DOCUMENT = "-DOCSTART-"


class Example(NamedTuple):
    """A tokenized sentence and its labels: a tag per word, one label for the sentence, or none."""

    words: list[str]
    """the tokens"""
    labels: list[str]
    """a tag for each word, or the sentence's one label, or none"""
    second: Sequence[str] = ()
    """the tokens of a pair's second text; of other sentences none"""


def texts_of(examples: Sequence[Example]) -> list[Sequence[str]]:
    """Return the sentence of each example; of pairs both texts, one after the other."""
    pairs = any(each.second for each in examples)
    return [text for each in examples for text in (each.words, each.second)[: 1 + pairs]]


def text_rows(examples: Iterable[int], texts: int) -> list[int]:
    """Return where the texts of these examples, each of so many texts, are in `texts_of`."""
    return [texts * index + part for index in examples for part in range(texts)]


def format_of(path: str | os.PathLike[str], format: str = "auto") -> str:
    """Return the format of a file, from its suffix (without .gz) if "auto". Raises: ElmoFastError."""
    check_choice("format", format, TASK_FORMATS)
    if format != "auto":
        return format
    if (known := SUFFIXES.get(ending(path))) is None:
        advice = f"give format={', '.join(TASK_FORMATS[1:-1])} or, to predict, text"
        raise ElmoFastError(f"{path}: the suffix does not tell the format ({', '.join(SUFFIXES)} do); {advice}")
    return known


def is_table(format: str, column: Column, label_column: str | None) -> bool:
    """Return whether a file of this format has named columns: a tsv if names are given, not numbers."""
    named = label_column is not None or not (column is None or is_number(column))
    return format in TABLES or (format == "tsv" and named)


def is_number(column: Column) -> bool:
    """Return whether a column is chosen by its number."""
    return re.fullmatch(r"-*\d+", str(column)) is not None


def read_examples(
    path: str | os.PathLike[str],
    format: str = "auto",
    column: str | int | None = None,
    tokenizer: str | None = None,
    *,
    label_column: str | None = None,
    pair_column: str | None = None,
    labelled: bool = True,
) -> list[Example]:
    """Return the labelled sentences of a UTF-8 file, gzip by the suffix .gz.

    Args:
        path: the file.
        format: "conllu": ten columns; syntactic words only; lines of multiword tokens (1-2) and empty nodes (1.1) are
            skipped. "columns": one word per line, columns separated by tabs or else by white space, a blank line after
            each sentence, -DOCSTART- lines skipped. "tsv": lines `label<TAB>sentence`; a first line with the names
            `label` and `sentence` or `text`, in either order, is a header. "csv", "jsonl", "parquet": a table with a
            sentence per row, read as `elmo-fast embed` does; so is a "tsv" if `column` or `label_column` is a name.
            "text": one sentence per line, no labels. "auto": by the suffix.
        column: where the labels are. "conllu": a column's name (default "upos") or number from 0. "columns": a number
            from 0, or from the end if negative (default -1, the last; the word is the first). "tsv": 0 (default) for
            `label<TAB>sentence`, 1 for `sentence<TAB>label`; not with a header, which decides. A table: the name of
            the column with the sentences (default "text").
        tokenizer: of sentences in "tsv", "text" and tables, one of TOKENIZERS; None splits at white space.
        label_column: of a table, the name of the column with the labels (default "label").
        pair_column: of a table of pairs, the name of the column with the second texts.
        labelled: False for sentences to predict: blank lines and rows without words become examples without words, and
            a table needs no labels.

    Raises:
        ElmoFastError: an invalid line, with its number; a missing column; no sentence.

    Warns: a first line that looks like a header, quoting that is not read.
    """
    rows = read_rows(os.fspath(path), format, column, tokenizer, label_column, pair_column, labelled)
    return [example for example, _ in rows]


def read_rows(
    path: str,
    format: str,
    column: Column,
    tokenizer: str | None,
    labels: str | None,
    second: str | None,
    labelled: bool,
) -> Iterator[tuple[Example, dict[str, Any]]]:
    """Yield each example and, of a table, its row with all columns (else {}).

    labels, second: the label_column and pair_column of read_examples, whose other arguments and errors it has.
    """
    format, lines, has_words = format_of(path, format), read_lines(path), False
    if second is not None and second == (TEXT_COLUMN if column is None else column):
        raise ElmoFastError(f"{path}: column and pair_column must be two columns of texts; got {second!r} for both")
    if is_table(format, column, labels) or second is not None:
        rows = _of_table(path, format, column, tokenizer, labels or LABEL_COLUMN if labelled else None, second)
    elif labels is not None:
        raise ElmoFastError(f"{path}: label_column is for tables; the format is {format}: column says where labels are")
    elif format in PER_WORD:
        words = (conllu_rows if format == "conllu" else _columns)(path, lines, column)
        rows = ((example, {}) for example in _grouped(words))
    elif format == "tsv":
        rows = ((example, {}) for example in _tsv(path, lines, column, tokenizer_of(tokenizer), labelled))
    elif column is not None:
        raise ElmoFastError(f"{path}: a text has no column of labels; got column {column!r}")
    else:
        tokenize = tokenizer_of(tokenizer)
        rows = ((Example(tokenize(line), []), {}) for _, line in lines if line or not labelled)
    for example, row in rows:
        has_words = has_words or bool(example.words)
        yield example, row
    if not has_words:
        raise ElmoFastError(f"{path}: contains no sentence; every split needs at least one")


def write_examples(path: str | os.PathLike[str], examples: Iterable[Example], format: str = "auto") -> None:
    """Write labelled sentences that read_examples reads back: "columns" as `word<TAB>tag`, or "tsv".

    Gzip if it ends in .gz. An example without words is one more blank line in "columns", and a tab alone in "tsv".

    Raises: ElmoFastError: another format; a word or label that the format cannot store.
    """
    format = format_of(path, format)
    if format not in ("columns", "tsv"):
        raise ElmoFastError(f'{os.fspath(path)}: sentences are written as "columns" or "tsv"; got format {format!r}')
    with writing(path) as file:
        for number, (words, labels, _) in enumerate(examples):
            where = f"{os.fspath(path)}: sentence {number}"
            for part in (*words, *labels):
                if not part.strip() or re.search(r"[\t\r\n\0]" if format == "columns" else r"[\s\0]", part):
                    why = "it is empty or holds what splits lines or words"
                    raise ElmoFastError(f"{where}: {part!r} cannot be written as {format}: {why}")
            if len(labels) != (len(words) if format == "columns" else min(1, len(words))):
                expected = "one per word" if format == "columns" else "one for the sentence"
                raise ElmoFastError(f"{where}: labels must be {expected}; got {len(words)} words, {len(labels)} labels")
            if format == "columns":
                lines = [f"{word}\t{tag}\n" for word, tag in zip(words, labels, strict=True)] + ["\n"]
            else:
                lines = [f"{''.join(labels)}\t{' '.join(words)}\n"]
            file.write("".join(lines).encode())


def write_predicted_csv(
    path: str | os.PathLike[str], records: Sequence[Mapping[str, Any]], predicted: Iterable[str | None]
) -> None:
    """Write rows as CSV with one more column, `predicted`; gzip if the name ends in .gz.

    Raises ElmoFastError if the rows have such a column.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    if PREDICTED in names:
        advice = "rename it, or give an output in .tsv or .jsonl"
        raise ElmoFastError(f"{path}: the input already has a column {PREDICTED!r}; {advice}")
    text = io.StringIO()
    rows = csv.DictWriter(text, [*names, PREDICTED], lineterminator="\n")
    rows.writeheader()
    for record, label in zip(records, predicted, strict=True):
        nested = {name: json.dumps(v, ensure_ascii=False) for name, v in record.items() if isinstance(v, list | dict)}
        rows.writerow({**record, **nested, PREDICTED: label})
    with writing(path) as file:
        file.write(text.getvalue().encode())


def write_tagged_conllu(
    path: str | os.PathLike[str], source: str | os.PathLike[str], column: Column, tags: Iterable[Sequence[str]]
) -> None:
    """Write `source`, a CoNLL-U file that is read twice, with other tags in a column; all else is the same bytes.

    column, tags: as in read_examples, of its sentences. Gzip if `path` ends in .gz. Raises: ElmoFastError.
    """
    at = CONLLU_COLUMNS.index(conllu_column(os.fspath(source), column))
    words = [row[0] for row in conllu_rows(os.fspath(source), read_lines(source), column) if row is not None]
    replaced = dict(zip(words, itertools.chain.from_iterable(tags), strict=True))
    with reading(source) as file:
        parts = _LINE_ENDS.split(file.read().decode())
    with writing(path) as file:
        for index, (line, end) in enumerate(zip(parts[::2], [*parts[1::2], ""], strict=True)):
            fields = line.split("\t")
            if index in replaced:
                fields[at] = replaced[index]
            file.write(("\t".join(fields) + end).encode())


def _grouped(rows: Iterable[Row]) -> Iterator[Example]:
    """Yield words with their labels as sentences."""
    for are_words, group in itertools.groupby(rows, lambda row: row is not None):
        if are_words:
            _, words, labels = zip(*filter(None, group), strict=True)
            yield Example(list(words), list(labels))


def _columns(path: str, lines: Lines, column: Column) -> Iterator[Row]:
    try:
        at = -1 if column is None else int(column)
    except ValueError as error:
        raise ElmoFastError(f"{path}: column of the format columns must be a number; got {column!r:.40}") from error
    width, tabs = 0, False
    for index, line in lines:
        if not line or line.split(maxsplit=1)[0] == _DOCUMENT:
            yield None
            continue
        if not width:
            tabs = "\t" in line
        fields = line.split("\t") if tabs else _BLANKS.split(line)
        if not width:
            width = len(fields)
            if not -width <= at < width or at in (0, -width):
                raise ElmoFastError(
                    f"{path}, line {index + 1}: there is no label in column {at}: column 0 is the word, "
                    f"and the line has {width} column(s), {line!r:.80}"
                )
        elif len(fields) != width:
            raise misfit(path, index, f"wanted {width} columns, as the lines before", fields)
        yield index, filled(path, index, "the word", fields[0]), filled(path, index, "the label", fields[at])


def opened_table(
    path: str | os.PathLike[str], format: str, column: Column, tokenizer: str | None
) -> contextlib.AbstractContextManager[TableColumn]:
    """Open a table of sentences; arguments as in read_examples. Raises ElmoFastError for another format."""
    if format not in (*TABLES, "tsv"):
        raise ElmoFastError(f"{os.fspath(path)}: wanted a table, csv, jsonl, parquet or tsv; the format is {format}")
    name = TEXT_COLUMN if column is None else str(column)
    return opened_source(path, format, column=name, tokenizer=tokenizer)  # type: ignore[return-value]


def _of_table(
    path: str, format: str, column: Column, tokenizer: str | None, labels: str | None, second: str | None
) -> Iterator[tuple[Example, dict[str, Any]]]:
    with opened_table(path, format, column, tokenizer) as table:
        for row, (sentence, record) in enumerate(table.rows()):
            where = f"{table.name}, {table.place(row)}"
            for option, name in {"pair_column": second, "label_column": labels}.items():
                if name is not None and name not in record:
                    advice = did_you_mean(name, list(record)) or f"; name another with {option}=NAME"
                    raise ElmoFastError(f"{where} has no column {name!r}; it has: {', '.join(record)}{advice}")
            other = () if second is None else table.sentence(row, record[second], second).tokens
            label = record[labels] if labels is not None else None
            if not isinstance(label, str | int | None):
                raise ElmoFastError(f"{where}, column {labels!r}: wanted a string or a whole number; got {label!r:.60}")
            label = "" if label is None else str(label).strip()
            filled = {"label": label, "sentence": sentence.tokens, "second text": other or second is None}
            empty = [what for what, value in filled.items() if not value]
            if labels is not None and empty:
                raise ElmoFastError(f"{where}: the {empty[0]} is empty; fill it, or remove the row")
            yield Example(sentence.tokens, [] if labels is None else [label], other), record


def _tsv(path: str, lines: Lines, column: Column, tokenize: Tokenize, labelled: bool) -> Iterator[Example]:
    if (at := {"None": 0, "0": 0, "1": 1}.get(str(column))) is None:
        raise ElmoFastError(f"{path}: column must be 0 (label<TAB>sentence) or 1 (the reverse); got {column!r:.40}")
    count, quoted, header = 0, list[int](), ""
    for index, line in lines:
        if not line:
            if not labelled:
                yield Example([], [])
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2:
            raise misfit(path, index, "wanted two columns, label<TAB>sentence (or the reverse, column 1)", fields)
        names = [field.lower() for field in fields]
        if index == 0 and "label" in names:
            if names[1 - names.index("label")] in ("sentence", "text"):
                at = names.index("label")
                continue
            header = " | ".join(fields)
        label, text, count = filled(path, index, "the label", fields[at]), fields[1 - at], count + 1
        if text[:1] == text[-1:] == '"' and '""' in text[1:-1]:
            quoted.append(index + 1)
        yield Example(tokenize(filled(path, index, "the sentence", text)), [label])
    if header:
        warnings.warn(
            f"{path}, line 1: {header:.60} looks like a header, and is read as a sentence: call its columns label and "
            "sentence, name them with column=NAME label_column=NAME, or remove the line",
            stacklevel=5,
        )
    if quoted:
        warnings.warn(
            f'{path}, line {quoted[0]}: the sentence is quoted as in CSV ("..""..""..."), as {len(quoted)} of {count} '
            "are, and the quotes are read as words: write a header and name its columns with column=NAME "
            "label_column=NAME, which reads quoting",
            stacklevel=5,
        )
