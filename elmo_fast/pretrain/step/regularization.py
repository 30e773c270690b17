"""Dropout and random resets of the LSTM state, drawn for the rows of the text, whichever process reads them."""

import numpy as np
import torch
from torch import Tensor

from elmo_fast.modules.elmo_lstm import LayerStates

# Rows that share a draw: few draws on a GPU, and few unused numbers if a process has fewer rows.
BLOCK = 32
# Of state resets, beside the keys of dropout's draws, (seed, step, block).
_RESET_KEY = (0, 1)


def dropout_masks(
    probability: float,
    seed: int,
    step: int,
    first_row: int,
    shape: tuple[int, int, int, int],
    device: torch.device | str = "cpu",
) -> Tensor:
    """Which elements of a batch's rows stay, a function of the arguments: [L + 1, 2, B, T, D] uint8, 1 or 0.

    probability: p of dropping one, 0 < p < 1; seed, step: of the run; first_row: number of the batch's first row among
    all rows; shape: (L, B, T, D) with L the LSTM layers: masks of L inputs and one result of both directions; device:
    where the activations are (CPU and GPU draw different masks).
    """
    layers, rows, steps, width = shape
    size, blocks = (layers + 1, 2, BLOCK, steps, width), range(first_row // BLOCK, -(-(first_row + rows) // BLOCK))
    skipped = first_row % BLOCK
    drawn = [_draw(probability, (seed, step, block), size, device) for block in blocks]
    return torch.cat(drawn, dim=2)[:, :, skipped : skipped + rows]


def _draw(probability: float, key: tuple[int, ...], shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    number = int(np.random.SeedSequence(key).generate_state(1)[0])
    generator = torch.Generator(device).manual_seed(number)
    return torch.empty(shape, dtype=torch.uint8, device=device).bernoulli_(1 - probability, generator=generator)


class RowDropout:
    """Drops what `kept` says (`dropout_masks`) and scales the rest by 1 / (1 - p), p being `probability`."""

    def __init__(self, kept: Tensor, probability: float) -> None:
        self.kept, self.scale = kept, 1 / (1 - probability)
        self._factors: Tensor | None = None

    def __call__(self, x: Tensor, layer: int, direction: int) -> Tensor:
        """x [B, T, D], the input of a layer or (layer L) the result, after dropout."""
        if self._factors is None or self._factors.dtype != x.dtype:
            one_launch = torch.result_type(self.kept, self.scale) == x.dtype
            self._factors = (self.kept if one_launch else self.kept.to(x.dtype)) * self.scale  # of all layers
        return x * self._factors[layer, direction]


def rows_to_reset(probability: float, seed: int, step: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of all R rows start step `step` from a zero state, as evaluation and embedding do: [rows]."""
    return np.random.default_rng((seed, step, *_RESET_KEY)).random(rows) < probability


def reset_rows(state: LayerStates, fresh: Tensor) -> LayerStates:
    """The state (h [L, 2, B, D], c [L, 2, B, H]), zero in the rows that `fresh` [B] bool marks."""
    h, c = (each.masked_fill(fresh[:, None], 0) for each in state)
    return h, c
