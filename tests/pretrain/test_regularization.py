"""Dropout by row, whose masks do not depend on who holds a row; rows that start again from zeros."""

import numpy as np
import pytest
import torch

from elmo_fast.pretrain.run import pretrain
from elmo_fast.pretrain.step import BLOCK, RowDropout, Step, dropout_masks, rows_to_reset
from tests.pretrain.toy import quiet, toy_config

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


def test_the_chance_is_that_of_every_row_and_step():
    """400 steps of 100 rows: the mean within five deviations, no row or step left out; other steps, other rows."""
    drawn = np.stack([rows_to_reset(0.1, 3, step, 100) for step in range(400)])
    assert abs(drawn.mean() - 0.1) < 5 * (0.1 * 0.9 / drawn.size) ** 0.5
    assert drawn.any(axis=0).all()
    assert len({row.tobytes() for row in drawn}) == 400
    assert not np.array_equal(rows_to_reset(0.1, 3, 0, 100), rows_to_reset(0.1, 4, 0, 100))


def test_a_step_reads_with_the_rows_that_begin_anew(tmp_path, monkeypatch):
    """What the network is given in each step is what the step before left, less the rows drawn; without resets, all."""
    given, left = [], []
    streams, call = Step.__call__, Step._losses

    def recording(self, inputs):
        given.append(inputs.state)
        return call(self, inputs)

    def step(self, words, state, number):
        left.append(state)
        return streams(self, words, state, number)

    monkeypatch.setattr(Step, "_losses", recording)
    monkeypatch.setattr(Step, "__call__", step)
    pretrain(toy_config(tmp_path, state_reset=0.5, max_steps=9), report=quiet)
    zeros = 0
    for number, (before, after) in enumerate(zip(left[1:], given[1:], strict=True), 1):
        fresh = torch.from_numpy(rows_to_reset(0.5, 0, number, 3))
        zeros += int(fresh.sum())
        assert all(torch.equal(a, b.masked_fill(fresh[:, None], 0)) for a, b in zip(after, before, strict=True))
    assert 0 < zeros < 24
