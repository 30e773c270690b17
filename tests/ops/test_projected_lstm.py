"""projected_lstm: the kernels of every backend against the float64 definition, the definition against torch.nn.LSTM
and by hand; and what only Triton's kernels could get wrong."""

import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import LSTMWeights, _dispatch, _native, _triton, projected_lstm
from tests.kernels.launch import card
from tests.ops.lstm_cases import cast, check, leaves, make
from tests.support.backends import HAS_CUDA, backends
from tests.support.tolerances import assert_no_worse

native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
KERNELS = backends("projected_lstm")
BACKENDS = [*KERNELS, "reference"]
both = pytest.mark.parametrize("backend", KERNELS)
INTERPRETED = () if HAS_CUDA else ("triton",)  # a step takes it a second


@both
@pytest.mark.parametrize(
    ("batch", "sizes"),
    [(1, (5, 7, 16)), (1, (70, 66, 100)), (3, (8, 8, 40)), (65, (5, 7, 16)), (65, (70, 66, 100))],
    ids=str,
)
def test_odd_shapes(backend, batch, sizes):
    steps, batch = (2, min(batch, 33)) if backend in INTERPRETED else (4, batch)
    lengths = torch.randint(0, steps + 1, (batch,))
    lengths[0] = steps
    check(make(batch, steps, *sizes, lengths=lengths), backend)


@both
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_precisions(backend, precision):
    steps = 3 if backend in INTERPRETED else 5
    lengths = torch.tensor([5, 5, 4, 4, 3, 1, 1, 0, 2]).clamp(max=steps)
    check(make(9, steps, 40, 40, 144, lengths=lengths), backend, precision, residual=True)


@native
def test_long_sums_do_not_round_at_the_size_of_the_whole():
    """4096 cells are projected: a single chain of 4096 sums is twice as far from float64 as torch's blocked ones."""
    case = make(8, 6, 16, 64, 4096, state=False)
    truth = projected_lstm(*cast(case, torch.float64), backend="reference")[0]
    errors = [
        (projected_lstm(*case, backend=backend)[0] - truth).square().mean().sqrt()
        for backend in ("native", "reference")
    ]
    assert errors[0] <= 1.2 * errors[1]


@native
@pytest.mark.parametrize(("batch", "time"), [(1, 3000), (64, 300)])
def test_the_gradient_of_the_bias_is_no_single_chain_of_sums(batch, time):
    """Many steps whose terms are alike: each addition to a float32 would round at the size of the whole."""

    def gradient(dtype):
        weights = LSTMWeights(*(torch.zeros(4, 1, dtype=dtype) for _ in range(2)), torch.full((4,), 0.7, dtype=dtype))
        weights.bias.requires_grad_()
        inputs = [torch.zeros(batch, time, 1, dtype=dtype)]
        out, _ = projected_lstm(inputs, [weights], reverse=(False,), cell_clip=0.1, backend="native")
        return torch.autograd.grad(out.sum(), weights.bias)[0]

    truth = gradient(torch.float64)
    assert_no_worse("bias", gradient(torch.float32), truth.float(), truth, "float32")


@native
@pytest.mark.parametrize("batch", [1, 16, 17, 32, 33])
def test_products_between_the_cells(batch):
    """bfloat16 and up to 32 rows: a block's product goes in steps between the cells of the block before it."""
    lengths = torch.arange(batch) % 5 + 1
    check(make(batch, 5, 40, 96, 72, lengths=lengths), "native", "bfloat16")


@native
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.usefixtures("isa")
def test_every_instruction_set(precision):
    check(make(19, 5, 40, 36, 70, lengths=torch.arange(19) % 5 + 1), "native", precision)


@both
@pytest.mark.parametrize(
    ("clips", "residual"),
    [((0.3, 0.2), True), ((None, 0.2), False), ((0.3, None), False), ((None, None), True)],
    ids=str,
)
def test_saturated_clips(backend, clips, residual):
    # Without a projection clip a larger recurrence is chaotic: every rounding grows, and the larger error is chance.
    scale = 1.0 if clips[1] is None else 2.0
    longest = 3 if backend in INTERPRETED else 8
    lengths = torch.tensor([8, 8, 5, 2, 1, 0]).clamp(max=longest)
    case = make(6, longest, 24, 24, 32, scale=scale, lengths=lengths)
    check(case, backend, cell_clip=clips[0], projection_clip=clips[1], residual=residual)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_pass_at_the_bounds_and_not_beyond(backend):
    """One cell, one step: cell, then projection sit exactly at, or just past, their bound; torch.clamp's rule."""

    def passes(cell, weight, cell_clip, projection_clip):
        cell, weight = torch.full((1, 1, 1), cell).requires_grad_(), torch.full((1, 1), weight).requires_grad_()
        layer = LSTMWeights(torch.zeros(4, 1), torch.zeros(4, 1), torch.zeros(4), weight)
        clips = {"cell_clip": cell_clip, "projection_clip": projection_clip, "reverse": (False,), "backend": backend}
        out, (_, c) = projected_lstm([torch.zeros(1, 1, 1)], [layer], None, (torch.zeros(1, 1, 1), cell), **clips)
        return [each.item() != 0 for each in torch.autograd.grad(out.sum() + c.sum(), [cell, weight])]

    # weight · σ(0) tanh(σ(0) · 40) = weight / 2, exactly whatever approximates tanh.
    assert [passes(40.0, weight, None, 0.25)[1] for weight in (0.5, 0.5000001)] == [True, False]
    assert [passes(start, 0.0, 0.5, None)[0] for start in (1.0, 1.0000001)] == [True, False]


@both
def test_without_projection(backend):
    check(
        make(5, 6, 9, 20, 20, projected=False, scale=3.0, lengths=torch.tensor([6, 5, 0, 3, 6])),
        backend,
        cell_clip=0.5,
        projection_clip=0.1,
    )


@both
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_masks_and_one_direction(backend, reverse):
    case = make(3, 3, 9, 20, 28, directions=1, state=reverse, lengths=torch.tensor([1, 3, 2]))
    check(case, backend, reverse=(reverse,), recurrent_masks=[torch.rand(3, 20).round() * 2])


@pytest.mark.parametrize("backend", [pytest.param("native", marks=native), "reference"])
def test_recurrent_masks_are_constants(backend):
    """No backend gives them a gradient, as the docstring says: none is lost by choosing another."""
    mask = torch.ones(2, 3, requires_grad=True)
    inputs, weights, lengths, state = make(2, 3, 4, 3, 5, directions=1)
    x = inputs[0].requires_grad_()
    out, _ = projected_lstm([x], weights, lengths, state, reverse=[False], recurrent_masks=[mask], backend=backend)
    d_x, d_mask = torch.autograd.grad(out.sum(), [x, mask], allow_unused=True)
    assert d_x.any()
    assert d_mask is None


def test_one_long_run_equals_two_halves():
    (x, _), w, _, _ = make(3, 4, 20, 20, 28, state=False)
    options = {"reverse": (False,), "residual": True, "backend": "reference"}
    whole, last = projected_lstm([x], w[:1], **options)
    first, state = projected_lstm([x[:, :2]], w[:1], **options)
    second, end = projected_lstm([x[:, 2:]], w[:1], None, state, **options)
    torch.testing.assert_close(torch.cat([first, second], 2), whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(end, last, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_do_not_touch_each_other_and_padding_is_inert(backend):
    """A row alone, cut to its length, gives what it gives in a padded batch; the padding is never read."""
    lengths, options = torch.tensor([2, 3, 0]), {"backend": backend}
    (x, _), w, _, state = make(3, 3, 18, 18, 20)
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = float("nan")
    assert projected_lstm([x[:0], x[:0]], w, **options)[0].shape == (2, 0, 3, 18)
    out, (h, c) = projected_lstm([x, x], w, lengths, state, **options)
    near = {"rtol": 0, "atol": 2e-6}
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(out[:, row, length:], torch.zeros_like(out[:, row, length:]))
        held = tuple(s[:, row : row + 1] for s in state)
        alone = x[row : row + 1, :length]
        y, (h1, c1) = projected_lstm([alone, alone], w, None, held, **options)
        torch.testing.assert_close(out[:, row, :length], y[:, 0], **near)
        torch.testing.assert_close((h[:, row], c[:, row]), (h1[:, 0], c1[:, 0]), **near)


@native
def test_a_row_is_bit_equal_whatever_its_company():
    (x, _), w, _, _ = make(130, 4, 48, 48, 64)
    out, _ = projected_lstm([x, x], w, backend="native")
    for rows in (1, 7, 65):
        assert torch.equal(projected_lstm([x[:rows], x[:rows]], w, backend="native")[0], out[:, :rows])


def test_equals_torch_lstm_without_clips():
    (x, _), (w, _), _, _ = make(3, 5, 7, 6, 10)
    expected = torch.nn.LSTM(7, 10, proj_size=6, batch_first=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its own projected LSTM is slow on the CPU
        for name, value in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "weight_hr_l0"), w, strict=True):
            getattr(expected, name).copy_(value)
        expected.bias_hh_l0.zero_()
        reference, (h, c) = expected(x)
    actual, last = projected_lstm([x], [w], reverse=(False,), cell_clip=None, projection_clip=None, backend="reference")
    torch.testing.assert_close((actual[0], *last), (reference, h, c), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: k.update(inputs=k["inputs"][:1]), "one entry per direction"),
        (lambda k: k.update(lengths=torch.tensor([4, 2])), r"lengths must have shape \[B=3\]"),
        (lambda k: k.update(lengths=torch.tensor([4, 2, 9])), "lengths must lie in 0..T=4"),
        (lambda k: k.update(lengths=torch.tensor([4.0, 2, 1])), "lengths must be int64"),
        (lambda k: k.update(cell_clip=0.0), "cell_clip must be a number > 0"),
        (lambda k: k.update(residual=True), "I=5, D=6"),
    ],
)
def test_bad_arguments_say_what_was_wanted(change, message):
    inputs, weights, _, _ = make(3, 4, 5, 6, 16)
    arguments = {"inputs": inputs, "weights": weights}
    change(arguments)
    with pytest.raises(ElmoFastError, match=message):
        projected_lstm(**arguments)


def test_lengths_elsewhere_are_refused():
    inputs, weights, _, _ = make(3, 4, 5, 6, 16)
    with pytest.raises(ElmoFastError, match=r"lengths and inputs must be on one device; got .* meta and .* cpu"):
        projected_lstm(inputs, weights, torch.tensor([4, 2, 1], device="meta"))


@both
def test_every_part_of_a_long_sum_is_added(backend):
    """As many cells as the last part of a split product needs to have terms."""
    check(make(1, 1, 8, 8, 512, directions=1), backend, reverse=(False,))


forward_kernels = None
if _triton.WHY_NOT is None:
    from elmo_fast.ops.projected_lstm import forward_kernels
needs_triton = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
triton = pytest.mark.parametrize("backend", [pytest.param("triton", marks=needs_triton)])


@triton
@settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck), derandomize=True)
@given(lengths=st.lists(st.integers(-(2**40), 2**40) | st.integers(-2, 6), min_size=1, max_size=5))
def test_triton_never_leaves_its_memory(backend, lengths):
    """Lengths that no check looks at on a GPU: whatever they are, they count as the nearest of 0..T."""
    x, weights, _, state = make(len(lengths), 3, 5, 5, 9)
    run, lengths = _dispatch.registered_op("projected_lstm", "triton"), torch.tensor(lengths)
    parts = [list(each) for each in zip(*weights, strict=True)]
    options = *state, [], [False, True], 3.0, 3.0, True, "float32", False
    *wild, _ = run(x, *parts, lengths, *options)
    *tame, _ = run(x, *parts, lengths.clamp(0, 3), *options)
    for a, b in zip(wild, tame, strict=True):
        assert torch.equal(a, b)
        assert not a.isnan().any()


@triton
@pytest.mark.parametrize(("apart", "precision"), [(False, "float32"), (True, "float16")])
def test_triton_with_products_by_cublas(backend, apart, precision, monkeypatch):
    """They are added to the gates in place or, where these have more digits than operands (bfloat16), by the kernel."""
    monkeypatch.setattr(forward_kernels, "FUSED", False)
    if apart:
        monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: torch.matmul(a.float(), b.float()))
    lengths = torch.tensor([2, 3, 0, 3])
    check(make(4, 3, 9, 20, 90, lengths=lengths), backend, precision, residual=False)
    check(make(4, 3, 9, 20, 20, projected=False, lengths=lengths), backend, precision, cell_clip=0.5)


@triton
def test_triton_without_projection_in_tiles_of_rows_that_have_ended(backend):
    """The product for W_hh's gradient reads the hidden state of all rows, 0 where a row has ended."""
    lengths = torch.zeros(130, dtype=torch.int64)
    lengths[:2] = torch.tensor([2, 1])
    check(make(130, 2, 4, 8, 8, directions=1, projected=False, lengths=lengths), backend, reverse=(False,))


@triton
def test_triton_leaves_what_it_saved(backend):
    """The same bits from the same graph again (retain_graph): nothing saved was written over."""
    case = cast(make(5, 4, 24, 24, 40, lengths=torch.tensor([4, 1, 3, 0, 4])), torch.float32)
    out, _ = projected_lstm(*case, backend=backend, precision="float16")
    grads = [torch.autograd.grad(out.sum(), leaves(case)[:10], retain_graph=True) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@triton
def test_triton_inputs_half_is_stored_in_16_bits(backend):
    """Several ragged tiles; what float16 cannot hold is its largest number, NaN stays."""
    kind = torch.float16 if _triton.INTERPRETED else torch.bfloat16
    x, weight = torch.randn(2, 3, 70, 21).to(kind), torch.randn(2, 164, 21).to(kind)
    x[0, 0, 3] = x[1, 2, 6] = 3e4
    weight[0, 5], weight[0, 43] = 3e4, -3e4
    x[1, 1, 2, 20] = torch.nan
    layer = forward_kernels.Layer(2, 70, 3, 21, 6, 41, (False, True), (3.0, 3.0), False, torch.bfloat16)
    result = forward_kernels.inputs_half(layer, x, weight)
    truth = x.double() @ weight.double().transpose(1, 2)[:, None]
    assert result.dtype == torch.float16
    assert torch.equal(result.isnan(), truth.isnan())
    beyond = truth.abs() > 65504
    assert beyond.any()
    assert torch.equal(result[beyond].double(), truth[beyond].sign() * 65504)
    held = truth.masked_fill(beyond | truth.isnan(), 0.0)
    actual = result.double().masked_fill(beyond | truth.isnan(), 0.0)
    assert ((actual - held).abs() <= 2.0**-11 * held.abs() + 1e-5).all()


@triton
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_triton_pre_activations_beyond_float16(backend, precision):
    """They saturate their gates, forwards and backwards, as what float32 holds does."""
    inputs, weights, _, state = make(3, 2, 6, 6, 20)
    weights = [w._replace(weight_ih=w.weight_ih * 2e4) for w in weights]
    check(([10 * x for x in inputs], weights, None, state), backend, precision)


@needs_triton
def test_triton_refuses_a_step_whose_offsets_would_not_fit():
    x, w = torch.empty(2**27, 1, 1, device="meta"), torch.empty(16, 1, device="meta")
    weights = LSTMWeights(w, torch.empty(16, 4, device="meta"), w[:, 0])
    with pytest.raises(ElmoFastError, match=r"B=134217728 rows and H=4 cells is too large; use B <= 262140"):
        _triton.python_functions["projected_lstm"](
            [x], *([w] for w in weights[:3]), [], None, None, None, [], [False], 3.0, 3.0, False, "float32", False
        )


def tiled(dtype, batch=128, cells=4096):
    return forward_kernels.Layer(2, batch, 20, 512, 512, cells, (False, True), (3.0, 3.0), True, dtype)


@needs_triton
@pytest.mark.parametrize("batch", [1, 32, 128, 1024])
@pytest.mark.parametrize("kernel", ["inputs", "cells", "project", "cells_backward", "recur"])
@pytest.mark.parametrize("memory", [99, 227])
def test_float32_adds_up_32_products_by_themselves(memory, kernel, batch):
    """Tensor cores cut their sums off, and a chain of exact products rounds once for each."""
    with card(memory):
        assert forward_kernels.tiles(tiled(torch.float32, batch), kernel, torch.device("cuda"))[0].depth <= 32
