"""Reads a text once for the lengths of its sentences, before anything is computed."""

import os
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.text.sources import Lines, Sentence, Source, TextFile

SHOWN_LINES = 5


@dataclass(frozen=True, eq=False)
class SurveyedText:
    """Sentences that can be read once more.

    name: what messages call their source; lengths: tokens of each, [N] int64; lines: their names, if they were kept: a
    text's lines, the keys of a format that has them; as_keys: whether these can name HDF5 datasets; source: what the
    sentences are read from.
    """

    name: str
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    lines: list[str] | None
    as_keys: bool
    source: Source = field(repr=False)

    def __len__(self) -> int:
        return len(self.lengths)

    def sentences(self) -> Iterator[list[str]]:
        """The sentences, read again; ElmoFastError if the text has changed."""
        count = 0
        for index, (tokens, _) in enumerate(self.source.sentences()):
            if index >= len(self) or len(tokens) != self.lengths[index]:
                raise ElmoFastError(f"{self.name} changed while being read, at {self.source.place(index)}")
            count += 1
            yield tokens
        if count != len(self):
            unit = self.source.unit
            raise ElmoFastError(f"{self.name} changed while being read: it had {len(self)} {unit}s and now has {count}")


def survey(
    source: str | os.PathLike[str] | TextIO | Source,
    name: str | None = None,
    *,
    keep_lines: bool = False,
    as_keys: bool = False,
    tokenizer: str | None = None,
) -> SurveyedText:
    """Reads a text for the first time, and counts its blank lines, which are sentences of length 0.

    Args:
        source: a text file, as for read_lines, an open text stream, whose lines are kept, or another Source.
        name: its name in messages; None: its own.
        keep_lines: whether to keep the lines in memory.
        as_keys: whether the lines become names of HDF5 datasets; they are then kept too.
        tokenizer: one of TOKENIZERS, for a file or a stream.

    Warns: how many lines are blank. Raises: ElmoFastError: no sentence, a line that cannot be a key; ElmoFastError and
    OSError as the source.
    """
    source = _as_source(source, tokenizer)
    name = name or source.name
    kept: list[str] | None = [] if keep_lines or as_keys or isinstance(source, Lines) else None
    lengths, checked = array("q"), Checks(name, source, as_keys)
    for index, sentence in enumerate(source.sentences()):
        lengths.append(len(sentence.tokens))
        checked.take(index, sentence)
        if kept is not None:
            kept.append(sentence.name)
    checked.end()
    return SurveyedText(name, np.array(lengths, np.int64), kept, as_keys, source)


def _as_source(text: str | os.PathLike[str] | TextIO | Source, tokenizer: str | None) -> Source:
    if isinstance(text, Source):
        return text
    if isinstance(text, str | os.PathLike):
        return TextFile(text, tokenizer=tokenizer)
    return Lines(str(getattr(text, "name", "the input")), [line.strip() for line in text], tokenizer)


class Checks:
    """Checks that a text contains a sentence and, `as_keys`, that each can name a dataset; counts blank lines.

    name: of the text, in messages.
    """

    def __init__(self, name: str, source: Source, as_keys: bool) -> None:
        self._name, self._source, self._as_keys = name, source, as_keys
        self._count, self._blank, self._seen = 0, list[int](), dict[str, int]()

    def take(self, index: int, sentence: Sentence) -> None:
        """The next sentence. Raises ElmoFastError if it cannot be a key."""
        self._count += 1
        if not sentence.tokens:
            self._blank.append(index + 1)
        elif self._as_keys:
            self._check_key(index, sentence.name)

    def end(self) -> None:
        """Raises ElmoFastError if there was no sentence; warns if lines were blank."""
        unit, count = self._source.unit, len(self._blank)
        if count == self._count:
            why = "it" if not count else f"every {unit} is blank: it"
            raise ElmoFastError(f"{self._name} is empty: {why} contains no sentence")
        if count:
            shown = ", ".join(map(str, self._blank[:SHOWN_LINES])) + (", ..." if count > SHOWN_LINES else "")
            which, vectors = (f"{unit}s" if count > 1 else unit), "no" if self._as_keys else "an empty array of"
            warnings.warn(
                f"{self._name}: {count:,} blank {which} skipped ({unit} {shown}): the output has {vectors} vectors for "
                f"{'them' if count > 1 else 'it'}",
                stacklevel=4,
            )

    def _check_key(self, index: int, key: str) -> None:
        where, keyed = self._source.place(index), self._source.keyed
        advice = "rename it, or choose another format of the output" if keyed else "leave out use_sentence_keys"
        if "/" in key or "\0" in key or key in ("", "."):
            raise ElmoFastError(
                f"{self._name}, {where}: {key[:60]!r} cannot be the name of a dataset (in HDF5 '/' separates "
                f"groups, '.' is the group itself and NUL ends a name); {advice}"
            )
        if self._seen.setdefault(key, index) != index:
            what = "have the same name" if keyed else "are the same sentence"
            raise ElmoFastError(
                f"{self._name}: {self._source.unit}s {self._seen[key] + 1} and {index + 1} {what}, but names must "
                f"differ; {advice}"
            )
