"""The lines of a CoNLL-U file: their columns, words and labels."""

import re
from collections.abc import Iterator

from elmo_fast.errors import ElmoFastError

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_RANGE_ID, _EMPTY_ID = re.compile(r"\d+-\d+"), re.compile(r"\d+\.\d+")

Column = str | int | None
Lines = Iterator[tuple[int, str]]
# The index of a line, its word and its label; None ends a sentence.
Row = tuple[int, str, str] | None


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


def conllu_rows(path: str, lines: Lines, column: Column) -> Iterator[Row]:
    """Yield the syntactic words of lines, with their labels, and None after each sentence. Raises: ElmoFastError."""
    at, number = CONLLU_COLUMNS.index(conllu_column(path, column)), 1
    for index, line in lines:
        if not line:
            yield None
            number = 1
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != len(CONLLU_COLUMNS):
            raise misfit(path, index, f"wanted {len(CONLLU_COLUMNS)} columns split by tabs", fields)
        if _RANGE_ID.fullmatch(fields[0]) or _EMPTY_ID.fullmatch(fields[0]):
            continue
        # Compared as text: Python refuses to make a number of thousands of digits.
        if fields[0].lstrip("0") != str(number):
            raise ElmoFastError(
                f"{path}, line {index + 1}: wanted the word number {number} (or a range 1-2, or an empty node 1.1); "
                f"got {fields[0]!r:.40}; is a blank line missing?"
            )
        yield index, filled(path, index, "the form", fields[1]), filled(path, index, "the label", fields[at])
        number += 1


def filled(path: str, index: int, what: str, field: str) -> str:
    """Return a field of a line; ElmoFastError if it is empty."""
    if not field:
        raise ElmoFastError(f"{path}, line {index + 1}: {what} is empty")
    return field


def misfit(path: str, index: int, expected: str, fields: list[str]) -> ElmoFastError:
    """Return the error for a line with another number of fields."""
    return ElmoFastError(f"{path}, line {index + 1}: {expected}; got {len(fields)}: {' | '.join(fields):.80}")
