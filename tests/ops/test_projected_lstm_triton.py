"""projected_lstm's Triton kernels: what only they could get wrong; their numbers are tested with all the others'."""

import types

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import LSTMWeights, _dispatch, _triton, projected_lstm
from tests.ops.lstm_cases import cast, check, leaves, make

TRITON = ["triton"]
if _triton.WHY_NOT is None:
    from elmo_fast.ops.projected_lstm import forward_kernels
pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))


@pytest.mark.parametrize("backend", TRITON)
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


@pytest.mark.parametrize("backend", TRITON)
@pytest.mark.parametrize(("apart", "precision"), [(False, "float32"), (True, "float16")])
def test_triton_with_products_by_cublas(backend, apart, precision, monkeypatch):
    """They are added to the gates in place or, as in bfloat16, by the kernel."""
    monkeypatch.setattr(forward_kernels, "FUSED", False)
    if apart:
        product = lambda steps, weight, step: (steps.hidden.select(1, step).float() @ weight.float()).float()  # noqa: E731
        monkeypatch.setattr(forward_kernels, "gates_product", product)
    lengths = torch.tensor([2, 3, 0, 3])
    check(make(4, 3, 9, 20, 90, lengths=lengths), backend, precision, residual=False)
    check(make(4, 3, 9, 20, 20, projected=False, lengths=lengths), backend, precision, cell_clip=0.5)


@pytest.mark.parametrize("backend", TRITON)
def test_triton_without_projection_in_tiles_of_rows_that_have_ended(backend):
    """The product for W_hh's gradient reads the hidden state of all rows, 0 where a row has ended."""
    lengths = torch.zeros(130, dtype=torch.int64)
    lengths[:2] = torch.tensor([2, 1])
    check(make(130, 2, 4, 8, 8, directions=1, projected=False, lengths=lengths), backend, reverse=(False,))


@pytest.mark.parametrize("backend", TRITON)
def test_triton_leaves_what_it_saved(backend):
    """The same bits from the same graph again (retain_graph): nothing saved was written over."""
    case = cast(make(5, 4, 24, 24, 40, lengths=torch.tensor([4, 1, 3, 0, 4])), torch.float32)
    out, _ = projected_lstm(*case, backend=backend, precision="float16")
    grads = [torch.autograd.grad(out.sum(), leaves(case)[:10], retain_graph=True) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("backend", TRITON)
def test_triton_inputs_half_is_stored_in_16_bits(backend):
    """Several ragged tiles; what float16 cannot hold is its largest number, NaN stays."""
    kind = torch.float16 if _triton.INTERPRETED else torch.bfloat16
    x, weight = torch.randn(2, 3, 70, 21).to(kind), torch.randn(2, 164, 21).to(kind)
    x[0, 0, 3] = x[1, 2, 6] = 3e4
    weight[0, 5], weight[0, 43] = 3e4, -3e4
    x[1, 1, 2, 20] = torch.nan
    layer = forward_kernels.Layer(2, 70, 3, 21, 6, 41, (False, True), 3.0, 3.0, False, torch.bfloat16)
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


@pytest.mark.parametrize("backend", TRITON)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_triton_pre_activations_beyond_float16(backend, precision):
    """They saturate their gates, forwards and backwards, as what float32 holds does."""
    inputs, weights, _, state = make(3, 2, 6, 6, 20)
    weights = [w._replace(weight_ih=w.weight_ih * 2e4) for w in weights]
    check(([10 * x for x in inputs], weights, None, state), backend, precision)


def test_triton_refuses_a_step_whose_offsets_would_not_fit():
    x, w = torch.empty(2**27, 1, 1, device="meta"), torch.empty(16, 1, device="meta")
    weights = LSTMWeights(w, torch.empty(16, 4, device="meta"), w[:, 0])
    with pytest.raises(ElmoFastError, match=r"B=134217728 rows and H=4 cells is too large; use B <= 262140"):
        _triton.python_function_of("projected_lstm")(
            [x], *([w] for w in weights[:3]), [], None, None, None, [], [False], 3.0, 3.0, False, "float32", False
        )


def tiled(dtype, batch=128, cells=4096):
    return forward_kernels.Layer(2, batch, 20, 512, 512, cells, (False, True), 3.0, 3.0, True, dtype)


@pytest.mark.parametrize("batch", [1, 32, 128, 1024])
@pytest.mark.parametrize("kernel", ["inputs", "cells", "project", "cells_backward", "recur"])
@pytest.mark.parametrize("memory", [99, 227])
def test_float32_adds_up_32_products_by_themselves(memory, kernel, batch, monkeypatch):
    """Tensor cores cut their sums off, and a chain of exact products rounds once for each."""
    gpu = types.SimpleNamespace(shared_memory_per_block_optin=memory * 1024, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    assert forward_kernels.tiles(tiled(torch.float32, batch), kernel, torch.device("cuda"))[0].depth <= 32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("cells", [20, 100, 512])
@pytest.mark.parametrize(("kernel", "gates"), [("project", 1), ("recur", 4)])
def test_a_sum_has_no_more_parts_than_depths(kernel, gates, cells, dtype):
    tile, parts = forward_kernels.tiles(tiled(dtype, 1, cells), kernel, torch.device("cuda"))
    assert parts <= _triton.cdiv(gates * cells, tile.depth)
