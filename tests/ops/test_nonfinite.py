"""NaN and infinity, as docs/numerics.md has them: native and reference agree, and other rows do not notice.

ELMO_FAST_CHECK_FINITE=1 names the op where a NaN enters or arises."""

import itertools
import math

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    LSTMWeights,
    _native,
    adagrad_,
    adagrad_rows_,
    char_cnn,
    full_softmax,
    hierarchical_softmax,
    highway,
    huffman_tree,
    negative_sampling,
    projected_lstm,
    rounded,
    sampled_softmax,
)
from tests.ops.calls import CALLS, MASK, pairs
from tests.support.backends import backends, device_of
from tests.support.tolerances import SMALL

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
both = pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "reference"])
every = pytest.mark.parametrize("backend", backends("full_softmax", reference=True))  # those of other ops
lstms = pytest.mark.parametrize("backend", backends("projected_lstm", reference=True))
NAN, INF = math.nan, math.inf


def with_special(op, name, place, value):
    """The tensors of an op, one element of one of them not finite; a place beyond the first is the last but one."""
    tensors = CALLS[op].tensors()
    flat = tensors[name].view(-1)
    flat[place if place == 0 else len(flat) - 2] = value
    return tensors


def assert_alike(name, actual, expected, precision):
    """NaN where there is NaN, infinity where there is infinity, and numbers close."""
    tolerance = 30 * SMALL[precision]
    torch.testing.assert_close(
        actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda message: f"{name}: {message}"
    )


def assert_as_reference(op, name, place, value, backend, precision):
    """Results to the kind of every element; no gradient is finite in the reference alone."""
    tensors = {key: each.to(device_of(backend)) for key, each in with_special(op, name, place, value).items()}
    options = {} if not CALLS[op].rounds else {"precision": precision}
    (actual, gradients), (expected, d_expected) = (
        CALLS[op].results(tensors, backend=each, **options) for each in (backend, "reference")
    )
    for result, truth in zip(actual, expected, strict=True):
        assert_alike(f"{op} at {precision}", result, truth, precision)
    if op.startswith("char_cnn") and name.startswith("b"):
        return  # all windows are alike in the reference; the kernel adds the bias after the maximum
    for leaf, gradient in gradients.items():
        assert not (d_expected[leaf].isfinite() & ~gradient.isfinite()).any(), f"gradient of {leaf} at {precision}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are expected
@pytest.mark.parametrize(("op", "backend"), pairs(CALLS))
def test_kernels_and_reference_agree(op, backend):
    """In each tensor of each op; on the CPU in 16 bits too, which the interpreter takes long for."""
    native = backend == "native"
    for name, (place, value) in itertools.product(CALLS[op].shapes, [(0, NAN), (1, INF), (0, -INF)][: 2 + native]):
        for precision in ("float32", "float16") if native and CALLS[op].rounds else ("float32",):
            assert_as_reference(op, name, place, value, backend, precision)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize(("op", "name"), [(op, name) for op, call in CALLS.items() for name in call.rows])
def test_other_rows_do_not_notice(op, name, value):
    """Row 0 holds it: results of the other rows, and the gradients to them, are those without it, bit by bit."""
    result, d_ours = CALLS[op].results(with_special(op, name, 0, value))
    expected, d_wanted = CALLS[op].results(CALLS[op].tensors())
    for actual, clean in zip(result, expected, strict=True):
        assert torch.equal(actual[1:], clean[1:])
    for leaf in CALLS[op].rows:
        assert torch.equal(d_ours[leaf][1:], d_wanted[leaf][1:]), leaf


@both
def test_an_infinite_bias_meets_the_largest_window_alone_in_the_kernel(backend):
    """Windows of -infinity and 1: the kernel adds the bias to 1, the reference to each, which makes NaN of the one."""
    out = char_cnn(
        torch.tensor([[0, 1]]), torch.tensor([[1.0], [-INF]]), [torch.ones(1, 1, 1)], [torch.tensor([INF])],
        backend=backend,
    )  # fmt: skip
    assert out.item() == INF if backend == "native" else out.isnan()


@both
def test_nan_in_the_first_step_spares_the_recurrent_weight_without_state(backend):
    """Nothing was multiplied by it there. Lengths 2 and 1: the gradient is that of the second step of row 0."""

    def gradients(bias):
        weights = [torch.full(shape, 0.5, requires_grad=True) for shape in ((4, 1), (4, 1), (1, 1))]
        w = LSTMWeights(weights[0], weights[1], torch.zeros(4), weights[2])
        x = torch.tensor([[1.0, 2.0], [bias, 0.0]]).unsqueeze(2).requires_grad_()
        out, _ = projected_lstm([x], [w], torch.tensor([2, 1]), reverse=[False], backend=backend)
        flowing = torch.ones_like(out)
        flowing[0, 1] = bias
        return torch.autograd.grad(out, weights[:2], flowing)

    (d_ih, d_hh), (_, expected) = gradients(INF), gradients(0.0)
    assert d_ih.isnan().any()
    assert torch.equal(d_hh, expected)
    assert d_hh.all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@lstms
@pytest.mark.parametrize("clip", [2.0, None])
def test_a_clip_passes_no_gradient_at_nan(clip, backend):
    """As in torch.clamp; without a clip the gradient is NaN's. The cell's clip, then the projection's."""

    def gradients(cell, projection):
        state = torch.zeros(1, 1, 1), torch.full((1, 1, 1), cell, requires_grad=True)
        weights = LSTMWeights(*(torch.full(shape, 0.5) for shape in ((4, 1), (4, 1), (4,), (1, 1))))
        weights.weight_hr.fill_(projection).requires_grad_()
        clips = {"cell_clip": clip, "projection_clip": clip, "reverse": [False], "backend": backend}
        outputs, _ = projected_lstm([torch.ones(1, 1, 1)], [weights], None, state, **clips)
        return [each.item() for each in torch.autograd.grad(outputs.sum(), [state[1], weights.weight_hr])]

    of_cell, _ = gradients(NAN, 0.5)
    _, of_projection = gradients(0.0, NAN)
    if clip is None:
        assert math.isnan(of_cell)
        hidden = 1 / (1 + math.exp(-1)) * math.tanh(1 / (1 + math.exp(-1)) * math.tanh(1))
        assert of_projection == pytest.approx(hidden)
    else:
        assert (of_cell, of_projection) == (0, 0)


@lstms
def test_padding_may_hold_anything(backend):
    """Past a row's length, and the state of a row without steps: the others' results and all gradients stay.

    The gradient that arrives at the padding may hold anything too."""
    call, actual = CALLS["projected_lstm state"], []
    for odd in (True, False):
        tensors = call.tensors()
        if odd:
            tensors["x"][1, 2:] = tensors["x"][2] = NAN
            tensors["h"][2] = tensors["c"][2] = INF
        leaves = {name: tensor.to(device_of(backend)).requires_grad_() for name, tensor in tensors.items()}
        outputs, *state = call.run(*leaves.values(), backend=backend)
        flowing = torch.ones_like(outputs)
        flowing[1, 2:] = flowing[2] = NAN if odd else 0.0
        weights = [leaves[name] for name in ("ih", "hh", "b", "hr")]
        x, *gradients = torch.autograd.grad(outputs, [leaves["x"], *weights], flowing)
        actual.append([*(each[torch.tensor([0, 1, 3])] for each in (outputs, *state)), x[1, :2], x[[0, 3]], *gradients])
    for number, (result, expected) in enumerate(zip(*actual, strict=True)):
        assert torch.equal(result, expected), number


def test_what_does_not_count_in_the_statistics_stays_at_its_position():
    """NaN at the position that the mask leaves out; at one that counts it makes all of the layer NaN."""
    tensors = CALLS["scalar_mix norm"].tensors()
    (clean,), _ = CALLS["scalar_mix norm"].results(tensors)
    tensors["first"][2] = NAN
    (mixes,), _ = CALLS["scalar_mix norm"].results(tensors)
    assert torch.equal(mixes[:, MASK], clean[:, MASK])
    assert mixes[:, 2].isnan().all()
    tensors["first"][0, 1] = INF
    assert CALLS["scalar_mix norm"].results(tensors)[0][0].isnan().all()


LOSSES = {
    "full_softmax": lambda b, t, **o: full_softmax(torch.zeros(1, 2), torch.tensor([t]), torch.zeros(3, 2), b, **o),
    "sampled_softmax": lambda b, t, **o: sampled_softmax(
        torch.zeros(1, 2), torch.tensor([t]), torch.zeros(3, 2), b, torch.tensor([0, 1, 2]), 3, **o
    ),
    "negative_sampling": lambda b, t, **o: negative_sampling(
        torch.zeros(1, 2), torch.tensor([t]), torch.zeros(3, 2), b, torch.tensor([0, 1, 2]), **o
    ),
}


@both
@pytest.mark.parametrize("op", list(LOSSES))
def test_infinite_logits(op, backend):
    """-infinity: a word of no chance, of infinite loss as the target. +infinity makes a softmax NaN."""

    def loss(target, *bias):
        return LOSSES[op](torch.tensor(bias), target, backend=backend).item()

    assert loss(0, -INF, 0.0, 0.0) == INF
    assert math.isfinite(loss(0, 0.0, -INF, 0.0))
    assert loss(0, 0.0, -INF, -INF) == pytest.approx(math.log(2) if op == "negative_sampling" else 0.0)
    for target, bias in ((0, (INF, 0.0, 0.0)), (0, (0.0, INF, 0.0)), (0, (-INF, -INF, -INF)), (0, (0.0, NAN, 0.0))):
        actual = loss(target, *bias)
        if op != "negative_sampling" or NAN in bias:
            assert math.isnan(actual)
        else:
            assert actual == (INF if bias[1] == INF or bias[0] == -INF else pytest.approx(2 * math.log(2)))


@both
@pytest.mark.parametrize("chunk_bytes", [1, 2**20])
@pytest.mark.parametrize("op", ["full_softmax", "sampled_softmax"])
def test_gradients_of_infinite_logits(op, chunk_bytes, backend):
    """A word of no chance gets none, though it fill a block; where the loss is NaN so is the gradient of every word."""
    hidden, targets, weight, samples = (
        torch.zeros(2, 2),
        torch.tensor([0, 2]),
        torch.zeros(3, 2),
        torch.tensor([0, 1, 2]),
    )

    def gradient(*bias):
        leaf, options = torch.tensor(bias, requires_grad=True), {"chunk_bytes": chunk_bytes, "backend": backend}
        if op == "full_softmax":
            losses = full_softmax(hidden, targets, weight, leaf, **options)
        else:
            losses = sampled_softmax(hidden, targets, weight, leaf, samples, 3, **options)
        return torch.autograd.grad(losses.sum(), leaf)[0]

    finite = gradient(0.0, -INF, 1.0)
    assert finite.isfinite().all()
    assert finite[1] == 0
    assert gradient(0.0, -INF, INF).isnan().all()


@every
@pytest.mark.parametrize("sparse", [False, True])
def test_the_only_word_costs_nothing_and_has_gradients(sparse, backend):
    """V = 1: a tree without inner nodes, whatever hidden holds."""
    hidden = torch.tensor([[1.0, NAN], [INF, 0.0]], requires_grad=True)
    weight, bias = torch.zeros(0, 2, requires_grad=True), torch.zeros(0, requires_grad=True)
    tree = huffman_tree(torch.tensor([5], device="cpu")).to(hidden.device)
    losses = hierarchical_softmax(hidden, torch.tensor([0, 0]), weight, bias, tree, sparse=sparse, backend=backend)
    assert losses.tolist() == [0, 0]
    gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias))
    assert [tuple(g.shape) for g in gradients] == [(2, 2), (0, 2), (0,)]
    assert not gradients[0].any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_adagrad_steps_to_nan_unless_the_scale_is_none(value, backend):
    """A gradient that is not finite makes its element NaN; under a scale that is not finite nothing changes."""
    gradient = torch.tensor([[1.0, value], [0.5, 2.0]])
    for rows in (False, True):
        for scale in (None, torch.tensor(value)):
            weight, sums = torch.ones(2, 2), torch.ones(2, 2)
            if rows:
                adagrad_rows_(weight, sums, torch.tensor([0, 1]), gradient, 0.1, scale, backend=backend)
            else:
                adagrad_([weight], [sums], [gradient], 0.1, scale, backend=backend)
            changed = scale is None
            assert weight.isnan().tolist() == [[False, changed], [False, False]]
            assert sums.isfinite().tolist() == [[True, not changed], [True, True]]
            assert changed or (weight.eq(1).all() and sums.eq(1).all())


def test_rounding_keeps_infinity_with_a_gradient_or_without():
    """Also for tensors that require a gradient: it passes unchanged."""
    values = torch.tensor([INF, -INF, NAN, 1e38, 1.0])
    leaf = values.clone().requires_grad_()
    for precision in ("bfloat16", "float16"):
        actual = rounded(leaf, precision)
        assert torch.equal(actual.detach().nan_to_num(7, 8, 9), rounded(values, precision).nan_to_num(7, 8, 9))
        assert torch.autograd.grad(actual, leaf, torch.arange(5.0))[0].tolist() == [0, 1, 2, 3, 4]


WEIGHTS, BIASES = [torch.eye(6, 3)], [torch.zeros(6)]


@every
def test_a_nan_is_an_error_where_it_enters(monkeypatch, backend):
    x = torch.ones(2, 3)
    x[1, 2] = NAN
    weights, biases = [w.to(x.device) for w in WEIGHTS], [b.to(x.device) for b in BIASES]
    assert highway(x, weights, biases, backend=backend)[1, 2].isnan()
    monkeypatch.setenv("ELMO_FAST_CHECK_FINITE", "1")
    with pytest.raises(ElmoFastError, match=r"highway: x holds NaN or infinity before the op"):
        highway(x, weights, biases, backend=backend)
    with pytest.raises(ElmoFastError, match=r"highway: weights\[0\] holds NaN"):
        highway(torch.ones_like(x), [weights[0] / 0], biases, backend=backend)
    assert torch.isfinite(highway(torch.ones_like(x), weights, biases, backend=backend)).all()


def test_a_sum_that_overflows_is_named_as_such(monkeypatch):
    monkeypatch.setenv("ELMO_FAST_CHECK_FINITE", "1")
    with pytest.raises(ElmoFastError, match="highway: results holds NaN or infinity although all arguments are finite"):
        highway(torch.full((2, 3), 3e38), [torch.ones(6, 3)], BIASES, torch.ones(4, 3), backend="reference")
