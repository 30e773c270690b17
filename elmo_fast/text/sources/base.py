"""What every kind of input is to those who embed it: sentences in order, which can be read again."""

import abc
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple


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
        """All sentences, from the first one; without tokens where a line is blank. Raises ElmoFastError, OSError."""

    def sentences_from(self, index: int) -> Iterator[Sentence]:
        """The sentences from that number on, counted from 0."""
        return islice(self.sentences(), index, None)

    def place(self, index: int) -> str:
        """How messages name the sentence of an index: "line 3"."""
        return f"{self.unit} {index + 1}"


class Lines(Source):
    """Lines of text that lie in memory, or that a function gives again and again."""

    def __init__(self, name: str, lines: Iterable[str]) -> None:
        self.name, self._lines = name, lines

    def sentences(self) -> Iterator[Sentence]:
        return (Sentence(line.split(), line) for line in self._lines)
