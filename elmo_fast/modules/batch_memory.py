"""Whether a batch of sentences fits into memory, asked before it runs."""

import math
from collections.abc import Callable, Iterable, Iterator

from elmo_fast import memory
from elmo_fast.errors import ElmoFastError
from elmo_fast.memory import size
from elmo_fast.modules.bilm import BiLM
from elmo_fast.text import SentenceBatch

UNASKED_BYTES = 1 << 26  # a smaller batch runs without asking how much memory is left


def that_fit(
    bilm: BiLM, batches: Iterable[SentenceBatch], stretch: int | None, at_once: int, name: Callable[[int], str]
) -> Iterator[SentenceBatch]:
    """The batches, each after a check.

    stretch: how many tokens of a sentence run at a time, None: all; at_once: how many batches run at a time; name: what
    the error calls the sentence of an index. Raises ElmoFastError, naming the longest sentence, for a batch that
    plainly does not fit into the memory left; not asked up to what an earlier batch took, whose memory is used again.
    """
    passed: float = UNASKED_BYTES if next(bilm.parameters()).device.type == "cpu" else math.inf
    for batch in batches:
        lengths = list(map(len, batch.sentences))
        longest = max(lengths)
        needed = at_once * batch_bytes(bilm, len(lengths), longest if stretch is None else min(longest, stretch))
        free = memory.available() if needed > passed else None
        if free is not None and needed > free:
            also = f", {at_once} of which run at once," if at_once > 1 else ""
            raise ElmoFastError(
                f"{name(batch.indices[lengths.index(longest)])} has {longest} tokens, and a batch of {len(lengths)} "
                f"sentences as long{also} takes about {size(needed // at_once)} of memory where {size(free)} are left "
                "to this process; give max_tokens or a smaller batch_size, or split the sentence"
            )
        passed = max(passed, needed)
        yield batch


def batch_bytes(bilm: BiLM, sentences: int, tokens: int) -> int:
    """About how many bytes a batch takes while so many tokens of each sentence run at a time."""
    lstm = bilm.options.lstm
    # Gates, cells and projections of two directions of one layer, and all layers.
    per_token = 2 * (5 * lstm.dim + lstm.projection_dim) + 4 * (lstm.n_layers + 1) * lstm.projection_dim
    return 4 * sentences * (tokens + 2) * per_token
