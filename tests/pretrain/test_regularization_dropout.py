"""Dropout by row: masks do not depend on who holds a row."""

import pytest
import torch

from elmo_fast.pretrain.step.regularization import BLOCK, RowDropout, dropout_masks

L, T, D = 2, 3, 4


def masks(first_row, rows, *, probability=0.3, seed=5, step=7):
    return dropout_masks(probability, seed, step, first_row, (L, rows, T, D))


@pytest.mark.parametrize(("first", "rows"), [(0, 1), (0, BLOCK), (5, 40), (BLOCK - 1, 2), (BLOCK, BLOCK), (70, 10)])
def test_a_rows_mask_is_the_same_in_every_share(first, rows):
    """Rows [first, first + rows) of 80 have the masks they have when one process holds all 80."""
    whole = masks(0, 80)
    assert whole.shape == (L + 1, 2, 80, T, D)
    assert torch.equal(masks(first, rows), whole[:, :, first : first + rows])


@pytest.mark.parametrize("other", [{"seed": 6}, {"step": 8}])
def test_another_seed_or_step_has_other_masks(other):
    assert not torch.equal(masks(0, 8), masks(0, 8, **other))


def test_layers_directions_blocks_and_rows_differ():
    whole = masks(0, 3 * BLOCK, probability=0.5)
    flat = whole.reshape((L + 1) * 2 * 3 * BLOCK, T * D)
    # 576 masks of 12 bits drawn at random: about 537 distinct ones.
    assert len(flat.unique(dim=0)) > 480


def test_what_stays_is_scaled_so_that_the_mean_stays():
    """Exactly p of many elements are dropped to within four standard deviations, the others times 1 / (1 - p)."""
    rows, p = 200, 0.3
    drop = RowDropout(dropout_masks(p, 0, 0, 0, (1, rows, 50, 16)), p)
    x = torch.ones(rows, 50, 16, dtype=torch.float64)
    for layer in range(2):
        for direction in range(2):
            y = drop(x, layer, direction)
            assert set(y.unique().tolist()) == {0.0, 1 / (1 - p)}
            spread = (p * (1 - p) / y.numel()) ** 0.5
            assert abs((y == 0).double().mean().item() - p) < 4 * spread
