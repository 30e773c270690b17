"""Whether a batch fits into the memory that is left, asked before it is run."""

from collections.abc import Callable, Sequence

from elmo_fast import memory
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.sizes import size

# A smaller batch runs without the question.
UNASKED_BYTES = 1 << 26


def bytes_of_batch(options: ElmoOptions, sentences: int, longest: int) -> int:
    """About how much memory a batch takes: gates, cells and projections of two directions of one layer, and all layers.

    options: the model's; longest: tokens of the longest sentence
    """
    lstm = options.lstm
    per_token = 2 * (4 * lstm.dim + lstm.dim + lstm.projection_dim) + 4 * (lstm.n_layers + 1) * lstm.projection_dim
    return 4 * sentences * (longest + 2) * per_token


class MemoryCheck:
    """Raises ElmoFastError, naming the longest sentence, when a batch plainly does not fit into the memory left.

    A batch no larger than one that passed passes: its memory is used again.

    options: the model's; name: what an error calls the sentence of an index.
    """

    def __init__(self, options: ElmoOptions, name: Callable[[int], str]) -> None:
        self._options, self._name, self._passed = options, name, UNASKED_BYTES

    def __call__(self, indices: Sequence[int], sentences: Sequence[Sequence[str]], stretch: int | None) -> None:
        """stretch: most tokens of a sentence that run at a time; None: all of them."""
        longest = max(range(len(sentences)), key=lambda i: len(sentences[i]))
        count = len(sentences[longest])
        needed = bytes_of_batch(self._options, len(sentences), count if stretch is None else min(count, stretch))
        free = memory.available() if needed > self._passed else None
        if free is not None and needed > free:
            raise ElmoFastError(
                f"{self._name(indices[longest])} has {count} tokens, and a batch of {len(sentences)} sentences as long "
                f"takes about {size(needed)} of memory where {size(free)} are left to this process; give max_tokens or "
                "a smaller batch_size, or split the sentence"
            )
        self._passed = max(self._passed, needed)
