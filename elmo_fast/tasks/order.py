"""The order of training: batches of sentences of similar length, shuffled for every epoch; nested shares."""

from collections.abc import Sequence

import numpy as np


def epoch_batches(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Sentence indices in batches of similar length; sentences of one length and the batches are shuffled by (seed,
    epoch) alone. lengths: words of each sentence, [N].
    """
    random = np.random.default_rng([seed, epoch])
    drawn = random.permutation(len(lengths))
    by_length = drawn[np.argsort(np.asarray(lengths)[drawn], kind="stable")]
    batches = _cut(by_length.tolist(), batch_size)
    return [batches[number] for number in random.permutation(len(batches))]


def fixed_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Sentence indices in batches of similar length, longest first, the same every time: for scoring."""
    return _cut(np.argsort(-np.asarray(lengths), kind="stable").tolist(), batch_size)


def _cut(order: list[int], batch_size: int) -> list[list[int]]:
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def shared_subset(count: int, share: float, seed: int) -> list[int]:
    """Which of `count` sentences belong to a share in (0, 1], in the order of the text; at least one.

    By one seed, a smaller share is a subset of a larger one.
    """
    kept = max(1, round(share * count))
    return sorted(np.random.default_rng([seed, count]).permutation(count)[:kept].tolist())
