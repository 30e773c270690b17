"""Tensors without elements, views of storages that have some: sums without terms are zero, on every backend."""

import pytest
import torch

from elmo_fast.ops import PRECISIONS, LSTMWeights, char_cnn, highway, projected_lstm
from tests.ops.calls import ALL, at_each_precision, placed
from tests.support.backends import backends, needs
from tests.support.tolerances import assert_close

# The sizes in calls.py that may be 0: rows, widths, outputs, cells, filters, mixes.
SIZES = {
    "char_cnn": (2, 70), "highway": (4, 5, 3), "highway without projection": (4, 5),
    "projected_lstm state": (4, 7, 5, 6), "projected_lstm without projection": (4, 7), "full_softmax": (4, 5),
    "sampled_softmax": (4, 5), "negative_sampling": (4, 5), "hierarchical_softmax": (4, 5), "scalar_mix": (4, 3, 5),
    "scalar_mix norm": (3, 5),
}  # fmt: skip


def emptied(tensor, size):
    """A view without the elements along each dimension of this size, or of as many gates."""
    gates = {5: (5, 10), 6: (6, 24)}.get(size, (size,))
    return tensor[tuple(slice(1, 1) if each in gates else slice(None) for each in tensor.shape)]


CASES = at_each_precision("float32", "float16", calls={name: ALL[name] for name in SIZES}, reference=True)


@pytest.mark.parametrize(("name", "backend", "precision"), CASES)
def test_a_size_may_be_zero(name, backend, precision):
    """Results and gradients are the definition's in float64: a bias alone, its gradient, or nothing."""
    call, tensors, how = placed(name, backend, precision)
    # The Triton kernels of the LSTM take batches without rows, but need widths and cells.
    for size in SIZES[name][: 1 if "projected_lstm" in name and backend == "triton" else None]:
        few = {key: emptied(tensor, size) for key, tensor in tensors.items()}
        (actual, gradients), (truth, d_truth) = (
            call.results(each, **options)
            for each, options in (
                (few, how),
                ({key: each.double() for key, each in few.items()}, {"backend": "reference"}),
            )
        )
        for result, true in zip((*actual, *gradients.values()), (*truth, *d_truth.values()), strict=True):
            assert_close(f"{name} without {size}", result, true, precision)


@pytest.mark.parametrize("backend", backends("char_cnn", reference=True))
def test_no_words_and_no_outputs(backend):
    """Results without rows or columns, and gradients that are zero."""
    table, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((6, 4), (5, 4, 2), (5,)))
    y = char_cnn(torch.zeros(0, 7, dtype=torch.int64), table, [weight], [bias], backend=backend)
    assert y.shape == (0, 5)
    for each in torch.autograd.grad(y.sum(), (table, weight, bias)):
        assert not each.any()
    assert highway(torch.randn(3, 8), [], [], torch.randn(4, 8)[1:1], backend=backend).shape == (3, 0)


@pytest.mark.parametrize("backend", backends("projected_lstm", reference=True, only=None))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projected", [True, False])
def test_projected_lstm_of_rows_without_steps_passes_no_gradient(projected, precision, backend):
    """All lengths 0: outputs and the weights' gradients are zero, the state goes through, though weights are NaN."""
    needs("projected_lstm", backend, precision)
    x = torch.randn(2, 3, 4, requires_grad=True)
    shapes = ((24, 4), (24, 6), (24,), (6, 6))[: 3 + projected]
    leaves = [x, *(torch.full(shape, torch.nan, requires_grad=True) for shape in shapes)]
    weights = LSTMWeights(*leaves[1:], *([] if projected else [None]))
    state = torch.randn(1, 2, 6, requires_grad=True), torch.randn(1, 2, 6, requires_grad=True)
    outputs, (h, c) = projected_lstm(
        [x], [weights], torch.zeros(2, dtype=torch.int64), state, reverse=[False], precision=precision, backend=backend
    )
    *gradients, d_h, d_c = torch.autograd.grad(outputs.sum() + h.sum() + 2 * c.sum(), [*leaves, *state])
    assert not outputs.any()
    assert torch.equal(h, state[0])
    assert torch.equal(c, state[1])
    assert all(each.shape == leaf.shape and not each.any() for each, leaf in zip(gradients, leaves, strict=True))
    assert torch.equal(d_h, torch.ones_like(d_h))
    assert torch.equal(d_c, torch.full_like(d_c, 2))
