"""What the losses of the output layers have in common under autograd."""

import pytest
import torch


def check_second_derivative(loss, hidden, backend):
    """A kernel's gradient has none of its own and says so; the reference's dense form has."""
    (first,) = torch.autograd.grad(loss.sum(), hidden, create_graph=True)
    if backend == "reference":
        assert torch.autograd.grad(first.square().sum(), hidden)[0].abs().max() > 0
        return
    with pytest.raises(RuntimeError, match="not differentiable"):
        first.sum().backward()
