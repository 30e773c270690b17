"""Random resets of the LSTM state of rows to zeros, from which evaluation and embedding start."""

import numpy as np
import torch

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops._transfer import sent

# Beside the keys of dropout's draws, (seed, step, block).
_KEY = (0, 1)


def rows_to_reset(probability: float, seed: int, step: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of all R rows start step `step` from zeros: a function of the arguments, [rows]."""
    return np.random.default_rng((seed, step, *_KEY)).random(rows) < probability


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
