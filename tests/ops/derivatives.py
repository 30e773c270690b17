"""What the losses of the output layers have in common under autograd."""

import pytest
import torch

from elmo_fast.ops import coalesced


def check_second_derivative(loss, hidden, backend):
    """A kernel's gradient has none of its own and says so; the reference's dense form has."""
    (first,) = torch.autograd.grad(loss.sum(), hidden, create_graph=True)
    if backend == "reference":
        assert torch.autograd.grad(first.square().sum(), hidden)[0].abs().max() > 0
        return
    with pytest.raises(RuntimeError, match="not differentiable"):
        first.sum().backward()


def dense_of(gradient, words):
    """A sparse gradient as a dense one: its indices are the distinct words, in order, and the flag can be had without
    another sort; on a GPU they are the words as they came."""
    if gradient.device.type != "cpu":
        assert torch.equal(gradient._indices()[0], words)
        return gradient.to_dense()
    assert torch.equal(gradient._indices()[0], words.unique())
    values, gradient = gradient._values(), coalesced(gradient)
    assert gradient._values().data_ptr() == values.data_ptr()
    return gradient.to_dense()
