"""How words become rows of ids, the input of an encoder: the interface of bytes and of lexicons."""

import abc
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    from torch import Tensor

Rows = np.ndarray[Any, np.dtype[np.int64]]


class Spelling(abc.ABC):
    """Turns each word into a row of S ids; a row of zeros is a padding token, and no word.

    slots: S
    begin, end: the words that stand for the begin and the end of a sentence
    """

    slots: int
    begin: str
    end: str

    @abc.abstractmethod
    def rows(self, words: Sequence[str]) -> Rows:
        """The ids of each word, [len(words), S]. Raises AttributeError or TypeError for what is not a string."""

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> "Tensor":
        """The ids of a batch of tokenized sentences, [B, T, S] int64, zeros behind a sentence's words.

        Raises ElmoFastError when the batch or a sentence is a string instead of a list, or a word is not a string.
        """
        import torch

        # Row 0 is the padding token; each distinct word is spelled once and copied to where it occurs.
        numbers: dict[str, int] = {}
        number = numbers.setdefault
        try:
            if isinstance(batch, str | bytes) or any(isinstance(sentence, str) for sentence in batch):
                raise TypeError
            matrix = np.zeros((len(batch), max(map(len, batch), default=0)), np.int64)
            for i, sentence in enumerate(batch):
                matrix[i, : len(sentence)] = [number(word, len(numbers) + 1) for word in sentence]
            rows = self.rows(list(numbers))
        except (AttributeError, TypeError) as error:
            raise ElmoFastError(
                f"batch_to_ids: batch must be a list of sentences, each a list of words (strings); {_offender(batch)}"
            ) from error
        ids = np.zeros((len(rows) + 1, self.slots), np.int64)
        ids[1:] = rows
        return torch.from_numpy(np.take(ids, matrix, axis=0))


def _offender(batch: Sequence[Sequence[str]]) -> str:
    if isinstance(batch, str | bytes):
        return f"the batch is {batch!r:.60}"
    for i, sentence in enumerate(batch):
        if isinstance(sentence, str | bytes) or not isinstance(sentence, Iterable):
            return f"sentence {i} is {sentence!r:.60}"
        for j, word in enumerate(sentence):
            if not isinstance(word, str):
                return f"word {j} of sentence {i} is {word!r:.60}"
    return f"{batch!r:.60}"
