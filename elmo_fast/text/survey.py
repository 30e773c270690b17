"""Reads a text once for the lengths of its sentences, before anything is computed."""

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.text.sentences import read_lines

SHOWN_LINES = 5


@dataclass(frozen=True, eq=False)
class SurveyedText:
    """A text of one sentence per line, tokens separated by white space, that can be read once more.

    name: what messages call it; lengths: tokens of each line, [N] int64; lines: the lines, if they were kept;
    as_keys: whether the lines can name HDF5 datasets; source: what it is read from, a file or the list of its lines.
    """

    name: str
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    lines: list[str] | None
    as_keys: bool
    source: Any = field(repr=False)

    def __len__(self) -> int:
        return len(self.lengths)

    def sentences(self) -> Iterator[list[str]]:
        """The sentences, read again; ElmoFastError if the text has changed."""
        count = 0
        for index, line in enumerate(self.source) if isinstance(self.source, list) else read_lines(self.source):
            tokens = line.split()
            if index >= len(self) or len(tokens) != self.lengths[index]:
                raise ElmoFastError(f"{self.name} changed while being read, at line {index + 1}")
            count += 1
            yield tokens
        if count != len(self):
            raise ElmoFastError(f"{self.name} changed while being read: it had {len(self)} lines and now has {count}")


def survey(
    source: str | os.PathLike[str] | TextIO,
    name: str | None = None,
    *,
    keep_lines: bool = False,
    as_keys: bool = False,
) -> SurveyedText:
    """Reads a text for the first time, and checks that no line is blank.

    Args:
        source: a file, as for read_lines, or an open text stream, whose lines are kept.
        name: its name in messages; None: its path.
        keep_lines: whether to keep the lines in memory.
        as_keys: whether the lines become names of HDF5 datasets; they are then kept too.

    Raises: ElmoFastError naming the lines that are blank or cannot be keys; ElmoFastError and OSError as read_lines.
    """
    lines: Iterable[tuple[int, str]]
    if streamed := not isinstance(source, str | os.PathLike):
        lines = enumerate(line.strip() for line in source)
        name = name or str(getattr(source, "name", "the input"))
    else:
        lines, name = read_lines(source), name or os.fspath(source)
    kept: list[str] | None = [] if keep_lines or as_keys or streamed else None
    lengths, blank, seen = array("q"), list[int](), dict[str, int]()
    for index, line in lines:
        lengths.append(len(line.split()))
        if not lengths[-1]:
            blank.append(index + 1)
        if kept is not None:
            kept.append(line)
        if as_keys:
            _check_key(name, index, line, seen)
    if not lengths:
        raise ElmoFastError(f"{name} is empty: it contains no sentence")
    if blank:
        more = f" and {len(blank) - SHOWN_LINES} more" if len(blank) > SHOWN_LINES else ""
        shown = ", ".join(map(str, blank[:SHOWN_LINES]))
        raise ElmoFastError(f"{name}: nothing but white space on line {shown}{more}; remove such lines")
    return SurveyedText(name, np.array(lengths, np.int64), kept, as_keys, kept if streamed else source)


def _check_key(name: str, index: int, line: str, seen: dict[str, int]) -> None:
    """seen: line -> its first index."""
    if "/" in line or "\0" in line or line == ".":
        raise ElmoFastError(
            f"{name}, line {index + 1}: {line[:60]!r} cannot be the name of a dataset (in HDF5 '/' separates "
            "groups, '.' is the group itself and NUL ends a name); leave out use_sentence_keys"
        )
    if seen.setdefault(line, index) != index:
        raise ElmoFastError(
            f"{name}: lines {seen[line] + 1} and {index + 1} are the same sentence, but names must differ; "
            "leave out use_sentence_keys"
        )
