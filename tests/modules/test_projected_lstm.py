"""One layer, one direction as a module: parameters, initialisation, state, dropout, clips."""

import pytest
import torch

from elmo_fast import ProjectedLSTM
from elmo_fast.errors import ElmoFastError

LENGTHS = [5, 4, 2, 1]


def make(**settings):
    lstm = ProjectedLSTM(3, 5, 7, memory_cell_clip_value=2, state_projection_clip_value=1, **settings)
    inputs = torch.rand(4, 5, 3)
    state = torch.rand(1, 4, 5), torch.rand(1, 4, 7)
    return lstm, inputs, state


@pytest.mark.parametrize("forward", [True, False])
def test_equals_the_cell_stepped_by_hand(forward):
    """The recurrence of Peters et al. 3.4, one row and one step at a time."""
    lstm, inputs, (h0, c0) = make(go_forward=forward)
    outputs, (h, c) = lstm(inputs * 3, LENGTHS, (h0, c0))
    for row, length in enumerate(LENGTHS):
        hidden, cell = h0[0, row], c0[0, row]
        for t in range(length) if forward else range(length - 1, -1, -1):
            i, f, g, o = (lstm.input_linearity(inputs[row, t] * 3) + lstm.state_linearity(hidden)).chunk(4)
            cell = (f.sigmoid() * cell + i.sigmoid() * g.tanh()).clamp(-2, 2)
            hidden = lstm.state_projection(o.sigmoid() * cell.tanh()).clamp(-1, 1)
            torch.testing.assert_close(outputs[row, t], hidden, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(h[0, row], hidden, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(c[0, row], cell, rtol=1e-5, atol=1e-6)
        assert not outputs[row, length:].any()


def test_initialisation():
    """Each gate's matrices have orthonormal rows or columns; the forget bias is 1, the others 0."""
    lstm = ProjectedLSTM(6, 4, 9)
    for linear, width in ((lstm.input_linearity, 6), (lstm.state_linearity, 4)):
        for gate in linear.weight.split(9):
            torch.testing.assert_close(gate.t() @ gate, torch.eye(width), rtol=1e-5, atol=1e-5)
    assert lstm.state_linearity.bias.tolist() == [0.0] * 9 + [1.0] * 9 + [0.0] * 18


def test_recurrent_dropout_keeps_one_mask_per_sequence():
    """A dropped unit of a row is 0 at every step, the others are scaled; no unit is dropped when not training."""
    lstm, inputs, _ = make(recurrent_dropout_probability=0.5)
    outputs, (h, _) = lstm(inputs)
    dropped = (outputs == 0).all(dim=1)
    assert 0 < dropped.sum() < dropped.numel()
    assert ((outputs == 0) == dropped[:, None]).all()
    assert torch.equal(h[0] == 0, dropped)
    mask = lstm.recurrent_mask(1000, inputs)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert 0.45 < mask.mean() / 2 < 0.55
    assert (lstm.eval()(inputs)[0] != 0).all()


def test_a_clip_of_zero_or_none_is_no_clip():
    free = ProjectedLSTM(3, 5, 7, memory_cell_clip_value=0, state_projection_clip_value=None)
    clipped = ProjectedLSTM(3, 5, 7, memory_cell_clip_value=0.1, state_projection_clip_value=0.05)
    clipped.load_state_dict(free.state_dict())
    inputs = 5 * torch.rand(2, 9, 3)
    assert free(inputs)[1][1].abs().max() > 0.1
    outputs, (_, c) = clipped(inputs)
    assert c.abs().max().item() == pytest.approx(0.1)
    assert outputs.abs().max() <= 0.05


def test_refusals():
    with pytest.raises(ElmoFastError, match="without a projection hidden_size must equal cell_size; got 5 and 7"):
        ProjectedLSTM(3, 5, 7, project=False)
    with pytest.raises(ElmoFastError, match="recurrent_dropout_probability"):
        ProjectedLSTM(3, 5, 7, recurrent_dropout_probability=1.0)
    assert ProjectedLSTM(3, 5, 5, project=False)(torch.rand(1, 2, 3))[0].shape == (1, 2, 5)
