"""Rows that begin anew from zeros."""

import numpy as np
import torch

from elmo_fast.pretrain.run import pretrain
from elmo_fast.pretrain.step.regularization import reset_rows, rows_to_reset
from elmo_fast.pretrain.step.training_step import Step
from tests.pretrain.toy import toy_config


def quiet(line: str) -> None:
    pass


def test_the_chance_is_that_of_every_row_and_step():
    """400 steps of 100 rows: the mean within five deviations, no row or step left out; other steps, other rows."""
    drawn = np.stack([rows_to_reset(0.1, 3, step, 100) for step in range(400)])
    assert abs(drawn.mean() - 0.1) < 5 * (0.1 * 0.9 / drawn.size) ** 0.5
    assert drawn.any(axis=0).all()
    assert len({row.tobytes() for row in drawn}) == 400
    assert not np.array_equal(rows_to_reset(0.1, 3, 0, 100), rows_to_reset(0.1, 4, 0, 100))


def test_fresh_rows_are_zeros_and_the_others_as_they_were():
    h, c = torch.rand(2, 2, 7, 3) + 1, torch.rand(2, 2, 7, 5) + 1
    fresh = torch.from_numpy(rows_to_reset(0.5, 1, 9, 7))
    assert 0 < fresh.sum() < 7
    whole = reset_rows((h, c), fresh)
    for before, after in zip((h, c), whole, strict=True):
        assert not after[:, :, fresh].any()
        assert torch.equal(after[:, :, ~fresh], before[:, :, ~fresh])


def test_a_step_reads_with_the_rows_that_begin_anew(tmp_path, monkeypatch):
    """What the network is given in each step is what the step before left, less the rows drawn; without resets, all."""
    given, left = [], []
    streams, call = Step.__call__, Step._losses

    def recording(self, inputs, characters):
        given.append(inputs.state)
        return call(self, inputs, characters)

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
