"""torch's FlopCounterMode counts our kernels' products as it counts the reference's."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from elmo_fast import FullSoftmaxLoss, HierarchicalSoftmaxLoss, NegativeSamplingLoss, SampledSoftmaxLoss
from elmo_fast.ops import LSTMWeights, char_cnn, highway, projected_lstm


def counted(run):
    """The operations of a call, forward and, if it returns a tensor that needs it, backward."""
    with FlopCounterMode(display=False) as forward:
        result = run()
    with FlopCounterMode(display=False) as backward:
        if result.requires_grad:
            result.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def lstm(backend, project=True):
    weights = [torch.randn(size, requires_grad=True) for size in [(20, 3), (20, 4 if project else 5), (20,), (4, 5)]]
    weights[3] = weights[3] if project else None
    inputs = torch.randn(2, 6, 3, requires_grad=True)
    return projected_lstm([inputs, inputs], [LSTMWeights(*weights)] * 2, backend=backend)[0]


def cnn(backend):
    weights = [torch.randn(size, requires_grad=True) for size in [(4, 3, 1), (5, 3, 4)]]
    biases = [torch.randn(4), torch.randn(5)]
    return char_cnn(torch.randint(9, (7, 10)), torch.randn(9, 3, requires_grad=True), weights, biases, backend=backend)


def layers(backend, projects=True):
    x, weights = torch.randn(7, 4, requires_grad=True), [torch.randn(8, 4, requires_grad=True) for _ in range(2)]
    projection = (torch.randn(3, 4, requires_grad=True), torch.randn(3)) if projects else (None, None)
    return highway(x, weights, [torch.randn(8)] * 2, *projection, backend=backend)


@pytest.mark.parametrize(
    ("run", "forward"),
    [
        (lstm, 2 * 2 * 2 * 6 * (20 * 3 + 20 * 4 + 4 * 5)),
        (lambda backend: lstm(backend, project=False), 2 * 2 * 2 * 6 * (20 * 3 + 20 * 5)),
        (cnn, 2 * 7 * (10 * 4 * 3 + 7 * 5 * 3 * 4)),
        (layers, 2 * 7 * (2 * 8 * 4 + 3 * 4)),
        (lambda backend: layers(backend, projects=False), 2 * 7 * 2 * 8 * 4),
    ],
)
def test_products_of_the_layers(run, forward):
    """Two operations for each weight that a row meets; the backward pass makes twice as many.

    The reference's backward pass makes no product for the first step's state, and none for where a maximum came from.
    """
    assert counted(lambda: run("native")) == (forward, 2 * forward)
    assert counted(lambda: run("reference"))[0] == forward


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda **k: FullSoftmaxLoss(20, 4, **k), 20),
        (lambda **k: SampledSoftmaxLoss(20, 4, 8, **k), 8 + 1),
        (lambda **k: NegativeSamplingLoss(20, 4, 8, torch.ones(20), **k), 8 + 1),
        (lambda **k: HierarchicalSoftmaxLoss(16, 4, torch.ones(16), **k), 4),
    ],
)
def test_products_of_the_losses(make, rows):
    """Of each position with the rows of the table that it is compared with."""
    hidden = torch.randn(6, 4, requires_grad=True)
    forward, backward = counted(lambda: make(backend="native")(hidden, torch.arange(6)))
    assert (forward, backward) == (2 * 6 * rows * 4, 2 * 2 * 6 * rows * 4)
