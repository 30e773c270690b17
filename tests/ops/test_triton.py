"""What all Triton kernels share: refusals in one sentence, the guard of the interpreter, plain products."""

import pytest
import torch

from elmo_fast.ops import _dispatch, _native, _triton
from tests.backends import device_of

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("found", "served"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((10, 0), True)], ids=str
)
def test_a_gpu_older_than_sm_80_is_refused(monkeypatch, found, served):
    monkeypatch.setattr(_triton, "INTERPRETED", False)
    monkeypatch.setattr(_native, "capability", lambda index: found)
    why = _triton.unsupported(CUDA, torch.float32, "float16")
    if served:
        assert why is None
    else:
        assert why == "the Triton kernels need compute capability 8.0 (sm_80) or newer, and this GPU has 7.5"


def test_other_dtypes_and_devices_are_refused(monkeypatch):
    monkeypatch.setattr(_triton, "INTERPRETED", False)
    monkeypatch.setattr(_native, "capability", lambda index: (9, 0))
    assert "float32 tensors, not float64" in _triton.unsupported(CUDA, torch.float64, "float32")
    assert "on cpu" in _triton.unsupported(torch.device("cpu"), torch.float32, "float32")
    assert "on meta" in _triton.unsupported(torch.device("meta"), torch.float32, "float32")
    monkeypatch.setattr(_triton, "WHY_NOT", "Triton is missing")
    assert _triton.unsupported(CUDA, torch.float32, "float32") == "Triton is missing"


def test_auto_on_the_cpu_never_takes_the_interpreter():
    """It serves when it is named, as tests do; and that it does not otherwise is worth no warning."""
    for op in _dispatch.op_names():
        choice = _dispatch.explain(op, torch.device("cpu"), torch.float32)
        assert choice.backend in ("native", "reference"), op


@pytest.mark.skipif(not _triton.INTERPRETED, reason="the kernels run compiled here")
def test_the_interpreter_is_given_no_bfloat16():
    """Its dots multiply bit patterns and say nothing: launch raises before."""
    from elmo_fast.ops.projected_lstm import kernels_order

    x = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="multiplies the bit patterns of bfloat16"):
        _triton.launch(kernels_order.arrange, (1,), x)


def test_an_empty_grid_starts_nothing():
    def kernel():
        raise AssertionError("started")

    _triton.launch(kernel, (3, 0))


@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("batched", [False, True])
def test_products_accumulate_in_float32(backend, batched):
    """4096 ones: float16 sums would stop at 2048. torch's own setting is left as it was."""
    device = device_of(backend)
    a, b = torch.ones(2, 3, 4096, device=device).half(), torch.ones(2, 4096, 5, device=device).half()
    a, b = (a, b) if batched else (a[0], b[0])
    before = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    for dtype in (torch.float16, torch.float32):
        found = _triton.matmul(a, b, dtype)
        assert found.dtype == dtype
        assert (found == 4096).all()
    assert torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction == before
