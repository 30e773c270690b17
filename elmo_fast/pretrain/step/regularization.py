"""Dropout and random resets of the LSTM state, drawn for the rows of the text, whichever process or part of a batch
reads them."""

import numpy as np
import torch
from torch import Tensor

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops._transfer import sent

# Rows that share a draw: few draws on a GPU, and few unused numbers if a process has fewer rows.
BLOCK = 32
# Of state resets, beside the keys of dropout's draws, (seed, step, block).
_RESET_KEY = (0, 1)


class RowDropout:
    """Drops elements with a chance of p and scales the others by 1 / (1 - p); masks are functions of the arguments.

    probability: p, 0 < p < 1; seed, step: of the run; first_row: number of the batch's first row among all rows;
    shape: (L, B, T, D) with L the LSTM layers, so that masks are drawn for L inputs and one result of both directions;
    device: where the activations are (CPU and GPU draw different masks).
    """

    def __init__(
        self,
        probability: float,
        seed: int,
        step: int,
        first_row: int,
        shape: tuple[int, int, int, int],
        device: torch.device | str = "cpu",
    ) -> None:
        layers, rows, steps, width = shape
        self.scale = 1 / (1 - probability)
        blocks = [
            self._draw(probability, (seed, step, block), (layers + 1, 2, BLOCK, steps, width), device)
            for block in range(first_row // BLOCK, -(-(first_row + rows) // BLOCK))
        ]
        skipped = first_row % BLOCK
        self.kept = torch.cat(blocks, dim=2)[:, :, skipped : skipped + rows]

    @staticmethod
    def _draw(probability: float, key: tuple[int, ...], shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        number = int(np.random.SeedSequence(key).generate_state(1)[0])
        generator = torch.Generator(device).manual_seed(number)
        return torch.empty(shape, dtype=torch.uint8, device=device).bernoulli_(1 - probability, generator=generator)

    def __call__(self, x: Tensor, layer: int, direction: int) -> Tensor:
        """x [B, T, D], the input of a layer or (layer L) the result, after dropout."""
        return x * (self.kept[layer, direction].to(x.dtype) * self.scale)


def rows_to_reset(probability: float, seed: int, step: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of all R rows start step `step` from a zero state, as evaluation and embedding do: [rows]."""
    return np.random.default_rng((seed, step, *_RESET_KEY)).random(rows) < probability


def reset_rows(
    state: LayerStates | None, probability: float, seed: int, step: int, first_row: int, rows: int
) -> LayerStates | None:
    """The state, zero in the rows that are reset; on a GPU without a sync.

    state: of rows first_row .. first_row + B of R = rows, (h [L, 2, B, D], c [L, 2, B, H]); None: all are zeros.
    """
    if state is None or not probability:
        return state
    h, c = state
    fresh = rows_to_reset(probability, seed, step, rows)[first_row : first_row + h.shape[2]]
    if not fresh.any():
        return state
    mask = sent(torch.from_numpy(fresh), h.device)[:, None]
    return h.masked_fill(mask, 0), c.masked_fill(mask, 0)
