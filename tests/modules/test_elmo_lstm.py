"""The stack: its state over batches of changing size, its residual, its directions."""

import copy

import pytest
import torch

from elmo_fast.modules.elmo_lstm import ElmoLstm

SIZES = {"hidden_size": 5, "cell_size": 7, "num_layers": 2}
CLIPS = {"memory_cell_clip_value": 2, "state_projection_clip_value": 1}


def make(**settings):
    return ElmoLstm(input_size=3, **(SIZES | CLIPS | settings))


def mask_of(lengths, time):
    return torch.arange(time) < torch.tensor(lengths)[:, None]


def test_layers_are_its_cells_one_after_the_other():
    """Each direction feeds itself, from the second layer on with a residual, which stays out of the state."""
    lstm, inputs, lengths = make(), torch.rand(3, 4, 3), [4, 3, 1]
    outputs = lstm(inputs, mask_of(lengths, 4))
    assert outputs.shape == (2, 3, 4, 10)
    assert torch.equal((outputs != 0).any(dim=-1), mask_of(lengths, 4).expand(2, 3, 4))
    for direction, layers in enumerate((lstm.forward_layers, lstm.backward_layers)):
        below = inputs
        for layer, cell in enumerate(layers):
            above, (h, c) = cell(below, lengths)
            above = above + below if layer else above
            part = outputs[layer, :, :, 5 * direction : 5 * direction + 5]
            torch.testing.assert_close(part, above * mask_of(lengths, 4)[..., None], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(lstm._states[0][layer, :, 5 * direction : 5 * direction + 5], h[0])
            torch.testing.assert_close(lstm._states[1][layer, :, 7 * direction : 7 * direction + 7], c[0])
            below = part
    assert not torch.allclose(outputs[1], make_without_skips(lstm)(inputs, mask_of(lengths, 4))[1])


def make_without_skips(lstm):
    other = make(use_skip_connections=False)
    other.load_state_dict(lstm.state_dict())
    return other


def test_resetting_some_rows():
    lstm = make()
    lstm(torch.rand(3, 4, 3), torch.ones(3, 4))
    before = lstm._states
    lstm.reset_states(torch.tensor([0.0, 1.0, 0.0]))
    for old, new in zip(before, lstm._states, strict=True):
        assert not new[:, 1].any()
        assert torch.equal(new[:, [0, 2]], old[:, [0, 2]])
    with pytest.raises(RuntimeError, match="shape"):
        lstm.reset_states(torch.tensor([True]))  # broadcast, it would reset all


def test_state_is_detached_follows_the_inputs_and_is_no_parameter():
    lstm = make(requires_grad=True)
    for _ in range(2):  # a second backward pass would fail through an attached state
        lstm(torch.rand(2, 4, 3), torch.ones(2, 4)).sum().backward()
    assert not any(s.requires_grad for s in lstm._states)
    assert set(lstm.state_dict()) == {name for name, _ in lstm.named_parameters()}
    lstm.double()
    assert lstm(torch.rand(2, 4, 3).double(), torch.ones(2, 4)).dtype == torch.float64
    assert torch.equal(copy.deepcopy(lstm)._states[0], lstm._states[0])


def test_state_from_inference_mode_serves_training():
    lstm = make(requires_grad=True)
    with torch.inference_mode():
        lstm(torch.rand(1, 4, 3), torch.ones(1, 4))
    lstm(torch.rand(1, 4, 3), torch.ones(1, 4)).sum().backward()
    assert all(p.grad is not None for p in lstm.parameters())
