"""Weights and words that several benchmarks use."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from elmo_fast import batch_to_ids
from elmo_fast.corpus import StreamBatch
from elmo_fast.pretrain.config import ORIGINAL_FILTERS
from tests.weights import make_weights

SIZES = {
    "original": {"cell": 4096, "proj": 512, "filters": ORIGINAL_FILTERS, "char_dim": 16},
    "small": {"cell": 256, "proj": 64, "filters": ((1, 16), (2, 16), (3, 32), (4, 64)), "char_dim": 16, "n_highway": 1},
}


def write_weights(size: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Write options.json and weights.hdf5 of the original or the small size, random weights; return both paths."""
    return make_weights(folder / size, **SIZES[size])


def words_of_step(
    forward: Sequence[str], backward: Sequence[str], targets: Mapping[str, int], rows: int, device: str = "cpu"
) -> tuple[StreamBatch, Callable[[Tensor], Tensor]]:
    """Return both directions' words of one step, `rows` rows of them end to end, and what spells them on a device; each
    predicts the word it reads.

    targets: the id to predict of each word.
    """
    streams = (forward, backward)
    numbers = {word: i for i, word in enumerate(dict.fromkeys([*forward, *backward]))}
    spelled = batch_to_ids([list(numbers)])[0].to(device)

    def windows(ids: Mapping[str, int]) -> Tensor:
        return torch.tensor([[ids[word] for word in stream] for stream in streams]).view(2, rows, -1)

    types = windows(numbers)
    steps = types.shape[2]
    filled = np.full(rows, steps, np.int64)
    return StreamBatch(types, windows(targets), filled, rows * steps, []), lambda chosen: spelled[chosen]
