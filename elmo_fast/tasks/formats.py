"""Files of labelled sentences: CoNLL-U, CoNLL's columns, and `label<TAB>sentence`."""

import itertools
import os
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.files import reading, writing
from elmo_fast.text import read_lines
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.tokenizers import Tokenize

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
# CoNLL-U's value of a column that is not annotated; in the other columns it is a value: no feature, no remark.
UNSPECIFIED, MAY_BE_EMPTY = "_", ("feats", "deps", "misc")
TASK_FORMATS = ("auto", "conllu", "columns", "tsv", "text")
_SUFFIXES = {
    ".conllu": "conllu",
    ".tsv": "tsv",
    **dict.fromkeys((".conll", ".conll2003", ".bio", ".iob", ".iob2", ".iobes", ".bioes", ".col", ".txt"), "columns"),
}
_TABLES = (".csv", ".jsonl", ".parquet")
_LINE_ENDS = re.compile("(\r\r\n|\r\n|\r|\n)")  # as read_lines splits
_BLANKS = re.compile(r"[ \t]+")
_RANGE_ID, _EMPTY_ID = re.compile(r"\d+-\d+"), re.compile(r"\d+\.\d+")
_DOCUMENT = "-DOCSTART-"
_ENOUGH = 3  # lines per label: with fewer, a label that occurs once in line 1 need not be a header's

Column = str | int | None
Lines = Iterator[tuple[int, str]]
# The index of a line, its word and its label; None ends a sentence.
Row = tuple[int, str, str] | None


class Example(NamedTuple):
    """A tokenized sentence and its labels: a tag per word, one label for the sentence, or none."""

    words: list[str]
    """the tokens"""
    labels: list[str]
    """a tag for each word, or the sentence's one label, or none"""


def format_of(path: str | os.PathLike[str], format: str = "auto") -> str:
    """Return the format of a file, from its suffix (without .gz) if "auto". Raises: ElmoFastError."""
    check_choice("format", format, TASK_FORMATS)
    if format != "auto":
        return format
    if (known := suffix_format(path)) is None:
        if pathlib.PurePath(path).suffix.lower() in _TABLES:
            raise ElmoFastError(
                f"{os.fspath(path)}: tables are not read or written here; write lines label<TAB>sentence, without "
                "quotes, to a .tsv file, and give --task classify"
            )
        raise ElmoFastError(
            f"{os.fspath(path)}: the suffix does not tell the format ({', '.join(_SUFFIXES)} do); "
            f"give --format (format=) {' or '.join(TASK_FORMATS[1:])}"
        )
    return known


def suffix_format(path: str | os.PathLike[str]) -> str | None:
    """Return the format that the suffix of a file (without .gz) names, or None."""
    name = pathlib.Path(path).name.lower().removesuffix(".gz")
    return _SUFFIXES.get(pathlib.PurePath(name).suffix)


def read_examples(
    path: str | os.PathLike[str],
    format: str = "auto",
    column: str | int | None = None,
    tokenizer: str | None = None,
    *,
    blank_lines: bool = False,
) -> list[Example]:
    """Return the labelled sentences of a UTF-8 file, gzip by the suffix .gz.

    Args:
        path: the file.
        format: "conllu": ten columns; syntactic words only; lines of multiword tokens (1-2) and empty nodes (1.1) are
            skipped. "columns": one word per line, columns separated by tabs or else by white space, a blank line after
            each sentence, -DOCSTART- lines skipped. "tsv": lines `label<TAB>sentence`; a first line with the names
            `label` and `sentence` or `text`, in either order, is a header. "text": one sentence per line, no labels.
            "auto": by the suffix.
        column: where the labels are. "conllu": a column's name (default "upos") or number from 0. "columns": a number
            from 0, or from the end if negative (default -1, the last; the word is the first). "tsv": 0 (default) for
            `label<TAB>sentence`, 1 for `sentence<TAB>label`; not with a header, which decides.
        tokenizer: of sentences in "tsv" and "text", one of TOKENIZERS; None splits at white space.
        blank_lines: whether a blank line of "tsv" and "text" is a sentence without words, so that sentence i is line i
            (of a file without a header); else it is skipped.

    Raises:
        ElmoFastError: an invalid line, with its number; a missing column; no sentence.
    """
    name = os.fspath(path)
    if name != "-" and not os.path.exists(name):
        raise ElmoFastError(f"path must be a file of sentences; there is no {name!r}")
    format, lines = format_of(path, format), read_lines(path)
    if format in ("conllu", "columns"):
        examples = list(_grouped(_ROWS[format](name, lines, column)))
    else:
        tokenize = tokenizer_of(tokenizer)
        read = _tsv if format == "tsv" else _text
        examples = list(read(name, lines, column, tokenize, blank_lines=blank_lines))
    if not any(example.words for example in examples):
        raise ElmoFastError(f"{name}: contains no sentence; every split needs at least one")
    return examples


def write_examples(path: str | os.PathLike[str], examples: Iterable[Example], format: str = "auto") -> None:
    """Write labelled sentences that read_examples reads back: "columns" as `word<TAB>tag`, or "tsv".

    Gzip if it ends in .gz. A sentence without words, which has no label, is a line without either: blank, or of "tsv" a
    tab alone.

    Raises: ElmoFastError: another format; a word or label that the format cannot store.
    """
    format = format_of(path, format)
    if format not in ("columns", "tsv"):
        raise ElmoFastError(f'{os.fspath(path)}: sentences are written as "columns" or "tsv"; got format {format!r}')
    with writing(path) as file:
        for number, (words, labels) in enumerate(examples):
            where = f"{os.fspath(path)}: sentence {number}"
            for part in (*words, *labels):
                if not part.strip() or re.search(r"[\t\r\n\0]" if format == "columns" else r"[\s\0]", part):
                    raise ElmoFastError(
                        f"{where}: {part!r} cannot be written as {format}: it is empty or holds what splits lines or "
                        "words"
                    )
            if not words and not labels:
                file.write(b"\n" if format == "columns" else b"\t\n")
                continue
            if len(labels) != (len(words) if format == "columns" else 1):
                expected = "one per word" if format == "columns" else "one for the sentence"
                raise ElmoFastError(f"{where}: labels must be {expected}; got {len(words)} words, {len(labels)} labels")
            if format == "columns":
                lines = [f"{word}\t{tag}\n" for word, tag in zip(words, labels, strict=True)] + ["\n"]
            else:
                lines = [f"{labels[0]}\t{' '.join(words)}\n"]
            file.write("".join(lines).encode())


def write_tagged_conllu(
    path: str | os.PathLike[str], source: str | os.PathLike[str], column: Column, tags: Iterable[Sequence[str]]
) -> None:
    """Write a CoNLL-U file again with other tags of its words in a column; all else is the same, byte by byte.

    Also comments, multiword tokens and empty nodes. Gzip if it ends in .gz.

    Args:
        path: the file to write.
        source: the file with the sentences, which is read twice.
        column: as in read_examples.
        tags: those of each sentence that read_examples returns.

    Raises: ElmoFastError.
    """
    at = CONLLU_COLUMNS.index(conllu_column(os.fspath(source), column))
    words = [row[0] for row in _conllu(os.fspath(source), read_lines(source), column) if row is not None]
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
    """Words with their labels as sentences."""
    words: list[str] = []
    labels: list[str] = []
    for row in itertools.chain(rows, [None]):
        if row is not None:
            words.append(row[1])
            labels.append(row[2])
        elif words:
            yield Example(words, labels)
            words, labels = [], []


def conllu_column(path: str, column: Column) -> str:
    """Return the name of a column of a CoNLL-U file, upos if it is None. Raises: ElmoFastError."""
    names = dict(zip(map(str, range(len(CONLLU_COLUMNS))), CONLLU_COLUMNS, strict=True))
    name = "upos" if column is None else names.get(str(column), str(column))
    if name not in CONLLU_COLUMNS:
        raise ElmoFastError(
            f"{path}: column of a CoNLL-U file must be one of {', '.join(CONLLU_COLUMNS)}, or 0 to 9; got "
            f"{column!r:.40}"
        )
    return name


def _conllu(path: str, lines: Lines, column: Column) -> Iterator[Row]:
    at, number = CONLLU_COLUMNS.index(conllu_column(path, column)), 1
    for index, line in lines:
        if not line:
            yield None
            number = 1
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != len(CONLLU_COLUMNS):
            raise _misfit(path, index, f"wanted {len(CONLLU_COLUMNS)} columns split by tabs", fields)
        if _RANGE_ID.fullmatch(fields[0]) or _EMPTY_ID.fullmatch(fields[0]):
            continue
        # Compared as text: Python refuses to make a number of thousands of digits.
        if fields[0].lstrip("0") != str(number):
            raise ElmoFastError(
                f"{path}, line {index + 1}: wanted the word number {number} (or a range 1-2, or an empty node 1.1); "
                f"got {fields[0]!r:.40}; is a blank line missing?"
            )
        yield index, _filled(path, index, "the form", fields[1]), _filled(path, index, "the label", fields[at])
        number += 1


def _columns(path: str, lines: Lines, column: Column) -> Iterator[Row]:
    at = _number(path, column, -1, "columns")
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
            raise _misfit(path, index, f"wanted {width} columns, as the lines before", fields)
        yield index, _filled(path, index, "the word", fields[0]), _filled(path, index, "the label", fields[at])


def _tsv(path: str, lines: Lines, column: Column, tokenize: Tokenize, *, blank_lines: bool) -> Iterator[Example]:
    at = _number(path, column, 0, "tsv")
    if at not in (0, 1):
        raise ElmoFastError(
            f"{path}: column of a tsv file must be 0 (label<TAB>sentence) or 1 (the reverse); got {column!r:.40}"
        )
    texts: tuple[Counter[str], Counter[str]] = Counter(), Counter()  # how often each value of a column occurs
    header, first, quoted = False, "", None
    for index, line in lines:
        if not line:
            if blank_lines:
                yield Example([], [])
            continue
        fields = line.split("\t")
        if len(fields) != 2:
            raise _misfit(path, index, "wanted two columns, label<TAB>sentence (or the reverse, column 1)", fields)
        names = [field.strip().lower() for field in fields]
        if index == 0 and "label" in names and names[1 - names.index("label")] in ("sentence", "text"):
            at, header = names.index("label"), True
            continue
        if index == 0 and "label" in names:
            warnings.warn(
                f"{path}, line 1: {line!r:.60} looks like a header, and is read as a sentence: call the columns label "
                "and sentence, or remove the line",
                stacklevel=4,
            )
        label, sentence = fields[at].strip(), fields[1 - at].strip()
        texts[at][label] += 1
        texts[1 - at][sentence] += 1
        if index == 0 and "label" not in names and len(sentence.split()) == 1:
            first = label
        if quoted is None and re.fullmatch(r'".*"".*"', sentence):
            quoted = index + 1
        _filled(path, index, "the label", label)
        yield Example(tokenize(_filled(path, index, "the sentence", sentence)), [label])
    if first and texts[at][first] == 1 and texts[at].total() >= _ENOUGH * len(texts[at]):
        warnings.warn(
            f"{path}, line 1: looks like a header, because the label {first!r} occurs nowhere else, and is read as a "
            "sentence: call the columns label and sentence, or remove the line",
            stacklevel=4,
        )
    if quoted is not None:
        warnings.warn(
            f"{path}, line {quoted}: the sentence is in quotes and has doubled ones in it, as CSV writers quote text; "
            "here all of them are read as text: write lines without quoting",
            stacklevel=4,
        )
    labels, sentences = len(texts[at]), len(texts[1 - at])
    if labels > sentences:
        order = "sentence<TAB>label" if at == 0 else "label<TAB>sentence"
        fix = "exchange the names in its first line" if header else f"give --column {1 - at} (column={1 - at})"
        warnings.warn(
            f"{path}: column {at} has {labels} different labels and column {1 - at} {sentences} different sentences: "
            f"if its lines are {order}, {fix}",
            stacklevel=4,
        )


def _text(path: str, lines: Lines, column: Column, tokenize: Tokenize, *, blank_lines: bool) -> Iterator[Example]:
    if column is not None:
        raise ElmoFastError(f"{path}: a text has no column of labels; got column {column!r}")
    for _, line in lines:
        if line or blank_lines:
            yield Example(tokenize(line), [])


_ROWS = {"conllu": _conllu, "columns": _columns}


def line_of(path: str, format: str, column: Column, labels: Collection[str]) -> tuple[int, str]:
    """Return the first line, from 1, of a file with a word per line that has one of the labels, and which one."""
    rows = _ROWS[format_of(path, format)](path, read_lines(path), column)
    return next((row[0] + 1, row[2]) for row in rows if row is not None and row[2] in labels)


def _number(path: str, column: Column, default: int, format: str) -> int:
    try:
        return default if column is None else int(column)
    except ValueError as error:
        raise ElmoFastError(f"{path}: column of the format {format} must be a number; got {column!r:.40}") from error


def _filled(path: str, index: int, what: str, field: str) -> str:
    if not field:
        raise ElmoFastError(f"{path}, line {index + 1}: {what} is empty")
    return field


def _misfit(path: str, index: int, expected: str, fields: list[str]) -> ElmoFastError:
    return ElmoFastError(f"{path}, line {index + 1}: {expected}; got {len(fields)}: {' | '.join(fields):.80}")
