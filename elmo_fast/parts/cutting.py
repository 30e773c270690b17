"""Cuts a text into parts, and reads the sentences of each."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.parts.plan import PLAN, Part, Plan
from elmo_fast.text import Source, SurveyedText
from elmo_fast.text.sources import Sentence
from elmo_fast.text.survey import Checks

# Parts for each process if all are of one size, so that little is done again when one is killed, and the longest part
# in windows.
PARTS_EACH, MOST_WINDOWS = 8, 16


def cut(
    source: Source, window: int, processes: int, part_sentences: int | None, as_keys: bool
) -> tuple[int, list[Part]]:
    """Reads all sentences once: how many a part has at most, and the parts.

    window: of how many sentences each part has a multiple, but the last one; processes: that are to share the parts;
    part_sentences: None chooses; as_keys: whether the names of the sentences must be names of datasets.

    Raises ElmoFastError as `survey` does, or if part_sentences is no multiple of the window.
    """
    if part_sentences is not None and (part_sentences < 1 or part_sentences % window):
        raise ElmoFastError(
            f"part_lines, the sentences of a part, must be a multiple of {window}: 16 batches, which are sorted by "
            f"length together; got {part_sentences}"
        )
    checks, windows, first = Checks(source.name, source, as_keys), list[tuple[int, int, bytes]](), 0
    sentences = source.sentences()
    while chunk := list(islice(sentences, window)):
        for index, sentence in enumerate(chunk, first):
            checks.take(index, sentence)
        first += len(chunk)
        windows.append((len(chunk), sum(len(sentence.tokens) for sentence in chunk), _digest(chunk)))
    checks.end()
    if part_sentences is None:
        sizes = list(_tapered(len(windows), processes))
    else:
        each = part_sentences // window
        sizes = [each] * math.ceil(len(windows) / each)
    return max(sizes) * window, list(_joined(windows, sizes))


def _tapered(windows: int, processes: int) -> Iterator[int]:
    """The windows of each part: equal parts, then ever smaller ones, so that the processes end together."""
    most, left = min(math.ceil(windows / (PARTS_EACH * processes)), MOST_WINDOWS), windows
    while left:
        yield (size := min(most, math.ceil(left / (2 * processes))))
        left -= size


def order_of(parts: Sequence[Part], share: tuple[int, int]) -> list[int]:
    """The numbers of the parts, as process share[0] of share[1] takes them.

    The largest come first, from its own place on; smaller ones are left for the end.
    """
    most = max(part.sentences for part in parts)
    large = [number for number, part in enumerate(parts) if part.sentences == most]
    smaller = [number for number, part in enumerate(parts) if part.sentences < most]
    start = len(large) * share[0] // share[1]
    return [*large[start:], *large[:start], *smaller]


def _joined(windows: Sequence[tuple[int, int, bytes]], sizes: Iterable[int]) -> Iterator[Part]:
    first, remaining = 0, iter(windows)
    for size in sizes:
        counts, tokens, digests = zip(*islice(remaining, size), strict=True)
        yield Part(first, sum(counts), sum(tokens), hashlib.sha256(b"".join(digests)).hexdigest())
        first += sum(counts)


def digest(sentences: Sequence[Sentence], window: int) -> str:
    """The sha256 of a part: that of the digests of its windows, which are of tokens and names."""
    chunks = (sentences[start : start + window] for start in range(0, len(sentences), window))
    return hashlib.sha256(b"".join(map(_digest, chunks))).hexdigest()


def _digest(sentences: Iterable[Sentence]) -> bytes:
    # Separators that stand in no token, so that no two texts give the same bytes.
    joined = "".join(f"{chr(31).join(tokens)}\x1e{name}\x1d" for tokens, name in sentences)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).digest()


class _PartOfText(Source):
    """Sentences that lie in memory, whose places are those in the whole text."""

    def __init__(self, whole: Source, first: int, sentences: Sequence[Sentence]) -> None:
        self.name, self.unit = whole.name, whole.unit
        self._whole, self._first, self._sentences = whole, first, sentences

    def sentences(self) -> Iterator[Sentence]:
        return iter(self._sentences)

    def place(self, index: int) -> str:
        return self._whole.place(self._first + index)


class PartReader:
    """Reads the sentences of part after part; one behind the last is reached by reading on.

    Raises ElmoFastError if the text is another one than that of the plan.
    """

    def __init__(self, source: Source, plan: Plan, window: int) -> None:
        self._source, self._plan, self._window = source, plan, window
        self._sentences: Iterator[Sentence] = iter(())
        self._at = -1

    def read(self, number: int) -> SurveyedText:
        """A part, as a text of its own whose sentences lie in memory."""
        part = self._plan.parts[number]
        if not 0 <= self._at <= part.first:
            self._sentences, self._at = self._source.sentences_from(part.first), part.first
        found = list(islice(self._sentences, part.first - self._at, part.end - self._at))
        self._at = part.end
        if len(found) != part.sentences or digest(found, self._window) != part.sha256:
            self._complain(f"{self._plan.range_of(number)} differ from those")
        if part.end == self._plan.sentences and next(self._sentences, None) is not None:
            self._complain(f"there are more {self._plan.unit}s than the {self._plan.sentences}")
        lengths = np.array([len(sentence.tokens) for sentence in found], np.int64)
        lines = [sentence.name for sentence in found]
        return SurveyedText(self._source.name, lengths, lines, False, _PartOfText(self._source, part.first, found))

    def check_all(self) -> None:
        """Reads the whole text and compares it with the plan."""
        for number in range(len(self._plan.parts)):
            self.read(number)

    def _complain(self, what: str) -> None:
        raise ElmoFastError(
            f"{self._source.name}: {what} of the text that the output folder's {PLAN} was made of "
            f"({self._plan.text}); give that text, or another output folder"
        )
