"""Dropout of a training step: what is dropped is a function of seed, step and the row's number among all rows."""

import numpy as np
import torch
from torch import Tensor

from elmo_fast.ops._sampling import dropout_factors

BLOCK = 32  # rows that share a generator on the CPU: few unused numbers if a process has fewer rows


class RowDropout:
    """Dropout of the inputs of L layers and of the result, in both directions.

    probability: p of dropping an element, 0 < p < 1; the rest are scaled by 1 / (1 - p); seed: of the run; offset:
    twice the step's number, [] or [1] int64 on the activations' device; first_row: number of the batch's first row
    among all rows; shape: (L, B, T, D). CPU and GPU drop different elements.
    """

    def __init__(
        self, probability: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int, int]
    ) -> None:
        layers, rows, steps, width = shape
        if samples_by_generator(offset.device):
            factors = _sampled(
                probability, (seed, int(offset) // 2), first_row, (2 * (layers + 1), rows, steps * width)
            )
        else:
            factors = dropout_factors(probability, seed, offset, first_row, (2 * (layers + 1), rows, steps * width))
        self.factors = factors.view(layers + 1, 2, rows, steps, width)

    def part(self, rows: slice) -> "RowDropout":
        """Return the dropout of some of the rows."""
        part = object.__new__(RowDropout)
        part.factors = self.factors[:, :, rows]
        return part

    def __call__(self, x: Tensor, layer: int, direction: int) -> Tensor:
        """Return x [B, T, D], the input of a layer or (layer L) the result, after dropout."""
        return x * self.factors[layer, direction].to(x.dtype)


def samples_by_generator(device: torch.device) -> bool:
    """Return whether torch's generators sample: on the CPU, where they are the fastest."""
    return device.type == "cpu"


def _sampled(p: float, key: tuple[int, int], first_row: int, shape: tuple[int, int, int]) -> Tensor:
    """As `dropout_factors`, by torch's generators: one for each BLOCK of all rows."""
    planes, rows, width = shape
    masks = []
    for block in range(first_row // BLOCK, -(-(first_row + rows) // BLOCK)):
        number = int(np.random.SeedSequence((*key, block)).generate_state(1)[0])
        mask = torch.empty(planes, BLOCK, width, dtype=torch.uint8, device="cpu")
        masks.append(mask.bernoulli_(1 - p, generator=torch.Generator().manual_seed(number)))
    skipped = first_row % BLOCK
    return torch.cat(masks, dim=1)[:, skipped : skipped + rows] * (1 / (1 - p))
