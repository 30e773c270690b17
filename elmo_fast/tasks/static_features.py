"""Words as rows of a table: pretrained static vectors, or random ones that are trained."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules._loading import loses_values
from elmo_fast.static import Vectors

_PADDING, _UNKNOWN, _FIRST = 0, 1, 2


class StaticFeatures(nn.Module):
    """A vector [D] for each word, looked up as written, else in lower case, else the vector of unknown words.

    The vector of unknown words is always trained; it starts as the mean of all vectors. A frozen table is not in the
    state_dict, because its file has it.

    Args:
        vectors: words and matrix [V, D] float32.
        trainable: whether the table is trained too.
        lower_case: whether a missing word is looked up in lower case.
        width: D, if a certain width is required.
        replaced: indices of words that are replaced by the unknown word half of the time in training, so that a table
            of the training text's own words learns a vector for unknown words.

    Raises: ElmoFastError: no words, one twice, a matrix of another shape or width, numbers that are not finite.

    Source: of `replaced`: Lample et al. 2016, section 4.3 (words that occur once, with probability 0.5).
    """

    table: Tensor

    def __init__(
        self,
        vectors: Vectors,
        *,
        trainable: bool = False,
        lower_case: bool = True,
        width: int | None = None,
        replaced: Iterable[int] = (),
    ) -> None:
        super().__init__()
        matrix = _checked(vectors, width)
        rows = torch.zeros(_FIRST + len(matrix), matrix.shape[1])
        np.copyto(rows.numpy()[_FIRST:], matrix)
        self.words, self.lower_case = list(vectors.words), lower_case
        self._numbers = {word: number for number, word in enumerate(self.words, _FIRST)}
        if len(self._numbers) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ElmoFastError(f"vectors must have each word once; got {twice!r} twice")
        self.unknown = nn.Parameter(rows[_FIRST:].mean(0))
        self._replaced = frozenset(number + _FIRST for number in replaced)
        self.trainable = trainable
        if trainable:
            self.table = nn.Parameter(rows)
        else:
            self.register_buffer("table", rows, persistent=False)
        self._lost = False

    @classmethod
    def random(cls, sentences: Iterable[Sequence[str]], width: int) -> "StaticFeatures":
        """A table of the words of `sentences`, in the order of their names, drawn from U(±√(3/D)) and trained.

        Words that occur once are `replaced`.
        """
        counts = Counter(word for words in sentences for word in words)
        if not counts:
            raise ElmoFastError("sentences must have at least one word; got none")
        check_counts(width=width)
        words = sorted(counts)
        bound = math.sqrt(3 / width)
        matrix = torch.empty(len(words), width).uniform_(-bound, bound).numpy()
        once = [number for number, word in enumerate(words) if counts[word] == 1]
        return cls(Vectors(words, matrix), trainable=True, replaced=once)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "StaticFeatures":
        super()._apply(fn, recurse)
        self._lost = self._lost or (not self.trainable and loses_values(fn))
        return self

    def get_output_dim(self) -> int:
        """D."""
        return self.table.shape[1]

    def coverage(self, sentences: Iterable[Sequence[str]]) -> float:
        """The share of the words of a text that have a vector."""
        found = [self._number(word) != _UNKNOWN for words in sentences for word in words]
        return sum(found) / max(1, len(found))

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The vectors of a batch of tokenised sentences, [B, T, D], 0 at padding.

        Raises: ElmoFastError: a frozen table, lost on the way through the device "meta" or in to_empty.
        """
        if self._lost:
            raise ElmoFastError(
                'the table of static vectors is in no state_dict, and to("meta") or to_empty dropped its values; '
                "make the features anew from the vectors' file"
            )
        longest = max(map(len, sentences), default=0)
        get = self._numbers.get
        rows = [[get(word) or self._number(word) for word in words] for words in sentences]
        numbers = torch.tensor([row + [_PADDING] * (longest - len(row)) for row in rows], dtype=torch.int64)
        if self.training and self._replaced:
            self._replace(numbers)
        some_unknown = bool((numbers == _UNKNOWN).any())
        numbers = numbers.to(self.table.device)
        found = F.embedding(numbers, self.table, _PADDING)
        return torch.where((numbers == _UNKNOWN)[..., None], self.unknown, found) if some_unknown else found

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None and self.lower_case:
            number = self._numbers.get(word.lower())
        return _UNKNOWN if number is None else number

    def _replace(self, numbers: Tensor) -> None:
        once = torch.tensor(sorted(self._replaced))
        drawn = torch.rand(numbers.shape) < 0.5
        numbers[drawn & torch.isin(numbers, once)] = _UNKNOWN


def _checked(vectors: Vectors, width: int | None) -> np.ndarray:
    matrix = np.asarray(vectors.matrix)
    if matrix.ndim != 2 or not len(vectors.words) == len(matrix) > 0 or not matrix.shape[1]:
        raise ElmoFastError(
            f"vectors must have a matrix [V, D] with a row per word; got {len(vectors.words)} words and a matrix of "
            f"shape {matrix.shape}"
        )
    if width is not None and matrix.shape[1] != width:
        raise ElmoFastError(f"vectors must be of width {width}; got {matrix.shape[1]}")
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise ElmoFastError(f"vectors must be finite numbers; those of {vectors.words[int(finite.argmin())]!r} are not")
    return matrix
