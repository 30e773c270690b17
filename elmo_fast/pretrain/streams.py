"""bilm-tf's streams: every row of a batch reads its own sentences, one after the other, without padding.

A sentence is `<S> w ... </S>`: inputs are all of it but the last, targets all but the first. Rows are filled in order,
and one that has come to the end of its sentence takes the next one that no row has taken. The backward model reads
sentences reversed, `</S> ... w <S>`, in an order of its own. (Source: bilm-tf, bilm/data.py, _get_batch and LMDataset.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.pretrain.corpus import Corpus

Ids = npt.NDArray[np.int32]


class Window(NamedTuple):
    """What one direction reads in one step.

    inputs: type ids [B, T] int32; targets: vocabulary ids [B, T] int32, those of the words after; filled: tokens of
    each row that are text, [B] int64, T but at the end of a single pass.
    """

    inputs: Ids
    targets: Ids
    filled: npt.NDArray[np.int64]


class Batch(NamedTuple):
    """Both directions' windows of one step; the two need not show the same sentences."""

    forward: Window
    backward: Window


@dataclass
class SentenceOrder:
    """Sentence numbers: passes over 0 ... count-1, each in a new order drawn from (seed, pass, direction).

    passes: how many, or None for ever; seed: None keeps the order of the files.
    """

    count: int
    seed: int | None
    direction: int
    passes: int | None = None

    def __iter__(self) -> Iterator[int]:
        done = 0
        while self.passes is None or done < self.passes:
            if self.seed is None:
                yield from range(self.count)
            else:
                yield from np.random.default_rng((self.seed, done, self.direction)).permutation(self.count).tolist()
            done += 1


class DirectionStream:
    """An iterator of the windows of one direction; ends when the order ends and every row has read all it took.

    corpus: the text; order: the sentences to read; batch_size: rows B; unroll_steps: T; reverse: the backward model's
    stream.
    """

    def __init__(
        self, corpus: Corpus, order: SentenceOrder, batch_size: int, unroll_steps: int, reverse: bool = False
    ) -> None:
        self.corpus, self.batch_size, self.unroll_steps, self.reverse = corpus, batch_size, unroll_steps, reverse
        self._order = iter(order)
        self._rests: list[Ids] = [np.empty(0, np.int32)] * batch_size

    def __iter__(self) -> "DirectionStream":
        return self

    def __next__(self) -> Window:
        ids = np.full((self.batch_size, self.unroll_steps), self.corpus.begin, np.int32)
        following = ids.copy()
        filled = np.array([self._fill(row, ids[row], following[row]) for row in range(self.batch_size)], np.int64)
        if not filled.any():
            raise StopIteration
        return Window(ids, self.corpus.targets(following), filled)

    def _fill(self, row: int, inputs: Ids, following: Ids) -> int:
        """Writes the next tokens of a row and those after them; returns how many there were."""
        position = 0
        while position < self.unroll_steps:
            if len(self._rests[row]) <= 1:
                index = next(self._order, None)
                if index is None:
                    break
                self._rests[row] = self._marked(index)
            rest = self._rests[row]
            count = min(len(rest) - 1, self.unroll_steps - position)
            inputs[position : position + count] = rest[:count]
            following[position : position + count] = rest[1 : count + 1]
            self._rests[row] = rest[count:]
            position += count
        return position

    def _marked(self, index: int) -> Ids:
        words, first, last = self.corpus.sentence(index), self.corpus.begin, self.corpus.end
        if self.reverse:
            words, first, last = words[::-1], last, first
        return np.concatenate([[first], words, [last]], dtype=np.int32)


def training_batches(
    corpus: Corpus, batch_size: int, unroll_steps: int, *, seed: int, shuffle: bool = True
) -> Iterator[Batch]:
    """Batches without end; with shuffle, sentences come in a new order each pass, another one per direction."""
    forward, backward = (
        DirectionStream(
            corpus, SentenceOrder(corpus.sentences, seed if shuffle else None, way), batch_size, unroll_steps, way == 1
        )
        for way in (0, 1)
    )
    return (Batch(*windows) for windows in zip(forward, backward, strict=True))


def single_pass(corpus: Corpus, batch_size: int, unroll_steps: int, reverse: bool) -> DirectionStream:
    """One direction's windows over the corpus in file order, every token once; rows run out at different times."""
    return DirectionStream(
        corpus, SentenceOrder(corpus.sentences, None, 0, passes=1), batch_size, unroll_steps, reverse
    )
