"""What a training step reads, made of given words instead of a corpus."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from elmo_fast import batch_to_ids
from elmo_fast.pretrain.step.training_step import Words


def reading(
    forward: Sequence[str], backward: Sequence[str], targets: Mapping[str, int], rows: int, device: str = "cpu"
) -> Words:
    """Both directions' words of one step, `rows` rows of them end to end; each predicts the word it has read.

    targets: the id to predict of each word.
    """
    streams = (forward, backward)
    numbers = {word: i for i, word in enumerate(dict.fromkeys([*forward, *backward]))}
    spelled = batch_to_ids([list(numbers)])[0].to(device)

    def windows(of: Mapping[str, int]) -> Tensor:
        return torch.tensor([[of[word] for word in stream] for stream in streams], device=device).view(2, rows, -1)

    types = windows(numbers)
    steps = types.shape[2]
    filled = np.full(rows, steps, np.int64)
    return Words(types, windows(targets), filled, rows * steps, 0, rows, lambda chosen: spelled[chosen])
