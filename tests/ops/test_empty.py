"""Tensors without elements, views of storages that have some: sums without terms are zero, on every backend."""

import pytest
import torch

from elmo_fast.ops import (
    PRECISIONS,
    LSTMWeights,
    _native,
    char_cnn,
    full_softmax,
    hierarchical_softmax,
    highway,
    huffman_tree,
    negative_sampling,
    projected_lstm,
    sampled_softmax,
    scalar_mix,
)
from tests.support.backends import backends, needs
from tests.support.tolerances import assert_close

native = pytest.param("native", marks=pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT)))
both = pytest.mark.parametrize("backend", [native, "reference"])
every = pytest.mark.parametrize("backend", backends("full_softmax", reference=True))  # those of other ops


def empty(*sizes):
    """A view without elements of a storage that has some."""
    return torch.randn(*(size or 4 for size in sizes))[
        tuple(slice(1, 1) if size == 0 else slice(None) for size in sizes)
    ]


def tensor(*sizes):
    return empty(*sizes) if 0 in sizes else torch.randn(sizes)


def zeros_like_all(gradients, leaves):
    """True if there is a gradient for each leaf, of its shape, and zero."""
    return all(g is not None and g.shape == x.shape and not g.any() for g, x in zip(gradients, leaves, strict=True))


def layer(batch, time, width, size, cells, projected=True):
    """Inputs, one direction's weights and their parameters."""
    shapes = (4 * cells, width), (4 * cells, size), (4 * cells,), (size, cells)
    x, *weights = (tensor(*shape).requires_grad_() for shape in ((batch, time, width), *shapes[: 3 + projected]))
    return x, LSTMWeights(*weights, *([] if projected else [None])), [x, *weights]


@both
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("width", "size"), [(8, 0), (0, 3), (0, 0)])
def test_highway_without_features_or_outputs(width, size, precision, backend):
    """y is the projection's bias, whose gradient is the sum of that of y; all other gradients are zero."""
    tensors = x, weight, bias, projection, offset = [
        tensor(*sizes).requires_grad_()
        for sizes in ((3, width), (2 * width, width), (2 * width,), (size, width), (size,))
    ]
    y = highway(x, [weight], [bias], projection, offset, precision=precision, backend=backend)
    *others, d_offset = torch.autograd.grad(y.sum(), tensors)
    if width == 0:
        assert torch.equal(y, offset.expand(3, size))
    assert torch.equal(d_offset, torch.full((size,), 3.0))
    assert zeros_like_all(others, tensors[:-1])


@both
@pytest.mark.parametrize("precision", PRECISIONS)
def test_encoders_without_rows(precision, backend):
    """Results without rows, and gradients that are zero."""
    table, x = tensor(6, 4).requires_grad_(), tensor(0, 4).requires_grad_()
    weights, biases = ([tensor(*shape).requires_grad_()] for shape in ((8, 4), (8,)))
    filters = [tensor(5, 4, 2).requires_grad_()], [tensor(5).requires_grad_()]
    how = {"precision": precision, "backend": backend}
    for y, leaves in (
        (highway(x, weights, biases, **how), [x, *weights, *biases]),
        (char_cnn(torch.zeros(0, 7, dtype=torch.int64), table, *filters, **how), [table, *filters[0], *filters[1]]),
    ):
        assert len(y) == 0
        assert zeros_like_all(torch.autograd.grad(y.sum(), leaves), leaves)


@both
def test_highway_with_a_projection_that_is_an_empty_view(backend):
    assert highway(torch.randn(3, 8), [], [], torch.randn(4, 8)[1:1], backend=backend).shape == (3, 0)


@both
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("size", "filters"), [(0, 5), (4, 0), (0, 0)])
def test_char_cnn_without_dimensions_or_filters(size, filters, precision, backend):
    """Features without terms are those of the bias alone."""
    tensors = embedding, weight, bias = [
        tensor(*sizes).requires_grad_() for sizes in ((6, size), (filters, size, 2), (filters,))
    ]
    features = char_cnn(torch.randint(6, (7, 5)), embedding, [weight], [bias], precision=precision, backend=backend)
    gradients = torch.autograd.grad(features.sum(), tensors)
    assert torch.equal(features, bias.relu().expand(7, filters))
    assert zeros_like_all(gradients[:2], tensors[:2])
    assert torch.equal(gradients[2], (bias > 0) * 7.0)


@both
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("size", [(3, 4, 0, 5, 6), (3, 4, 4, 0, 6), (3, 4, 4, 5, 0), (0, 4, 4, 5, 6)], ids=str)
def test_projected_lstm_without_inputs_outputs_cells_or_rows(size, precision, backend):
    """Equals the definition in float64, gradients too."""
    needs("projected_lstm", backend, precision)
    x, weights, leaves = layer(*size)
    outputs, (h, c) = projected_lstm([x], [weights], reverse=[False], precision=precision, backend=backend)
    gradients = torch.autograd.grad(outputs.sum() + c.sum(), leaves)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected, (h64, c64) = projected_lstm(
        [doubles[0]], [LSTMWeights(*doubles[1:])], reverse=[False], backend="reference"
    )
    d_wanted = torch.autograd.grad(expected.sum() + c64.sum(), doubles)
    for name, actual, truth in zip(
        "yhcxihbr", (outputs, h, c, *gradients), (expected, h64, c64, *d_wanted), strict=True
    ):
        assert_close(name, actual, truth, precision)


@both
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projected", [True, False])
def test_projected_lstm_of_rows_without_steps_passes_no_gradient(projected, precision, backend):
    """All lengths 0: outputs and the weights' gradients are zero, the state goes through, though weights are NaN."""
    x, weights, leaves = layer(2, 3, 4, 6, 6, projected)
    for leaf in leaves[1:]:
        leaf.detach().fill_(torch.nan)
    state = torch.randn(1, 2, 6, requires_grad=True), torch.randn(1, 2, 6, requires_grad=True)
    outputs, (h, c) = projected_lstm(
        [x], [weights], torch.zeros(2, dtype=torch.int64), state, reverse=[False], precision=precision, backend=backend
    )
    *gradients, d_h, d_c = torch.autograd.grad(outputs.sum() + h.sum() + 2 * c.sum(), [*leaves, *state])
    assert not outputs.any()
    assert torch.equal(h, state[0])
    assert torch.equal(c, state[1])
    assert zeros_like_all(gradients, leaves)
    assert torch.equal(d_h, torch.ones_like(d_h))
    assert torch.equal(d_c, torch.full_like(d_c, 2))


@pytest.mark.parametrize("backend", backends("scalar_mix", reference=True))
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("shape", "mixes"), [((4,), 0), ((3, 4), 0), ((3, 0), 2), ((0, 3, 4), 2)], ids=str)
def test_scalar_mix_without_mixes_or_elements(shape, mixes, layer_norm, backend):
    tensors = first, second, scalars, gammas = [
        tensor(*s).requires_grad_() for s in (shape, shape, (mixes, 2), (mixes,))
    ]
    y = scalar_mix([first, second], scalars, gammas, layer_norm=layer_norm, backend=backend)
    assert y.shape == (mixes, *shape)
    assert zeros_like_all(torch.autograd.grad(y.sum(), tensors), tensors)


@every
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("op", ["full", "sampled", "negative", "hierarchical"])
@pytest.mark.parametrize(("rows", "size"), [(0, 4), (5, 0), (0, 0)])
def test_output_layers_without_rows_or_dimensions(op, rows, size, precision, backend):
    """Without dimensions a loss is that of the biases alone, and their gradient is there."""
    needs("full_softmax", backend, precision)
    words = 8 if op == "hierarchical" else 7
    tensors = [tensor(*s).requires_grad_() for s in ((rows, size), (7, size), (7,))]
    targets, options = torch.randint(words, (rows,)), {"precision": precision, "backend": backend}

    def losses(hidden, weight, bias, **options):
        if op == "full":
            return full_softmax(hidden, targets, weight, bias, **options)
        if op == "sampled":
            return sampled_softmax(hidden, targets, weight, bias, torch.tensor([0, 2, 5]), 3, **options)
        if op == "negative":
            return negative_sampling(hidden, targets, weight, bias, torch.tensor([0, 2, 5]), **options)
        tree = huffman_tree(torch.arange(8, device="cpu")).to(hidden.device)
        return hierarchical_softmax(hidden, targets, weight, bias, tree, **options)

    doubles = [x.detach().double().requires_grad_() for x in tensors]
    actual, expected = losses(*tensors, **options), losses(*doubles, backend="reference")
    assert_close("losses", actual, expected, "float32")
    gradients, truth = torch.autograd.grad(actual.sum(), tensors), torch.autograd.grad(expected.sum(), doubles)
    for name, result, true in zip("hwb", gradients, truth, strict=True):
        assert_close(name, result, true, precision)
