"""A device without a kernel is served by plain torch, with one warning."""

import warnings

import pytest
import torch

import elmo_fast.static.glove  # noqa: F401  (registers itself)
from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _dispatch, _native, _triton
from tests.support.backends import pretend_gpu

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def unwarned():
    """Every test begins as a new process does."""
    _dispatch.warn_once.cache_clear()
    yield
    _dispatch.warn_once.cache_clear()


def slower(monkeypatch, *precisions):
    """Pretend that these were measured to be slower than float32 on this CPU's instruction set."""
    isa, sets = _native.C.isa(), _native.INSTRUCTION_SETS
    monkeypatch.setitem(sets, isa, sets[isa]._replace(slower=precisions))


@pytest.mark.parametrize("op", ["glove"])
def test_an_op_without_a_kernel_for_gpus_says_so_once(op):
    with pytest.warns(
        PerformanceWarning, match=f"{op}: using the slower backend 'reference', because it has no kernel"
    ):
        _dispatch.select(op, "auto", CUDA, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _dispatch.select(op, "auto", CUDA, torch.float32)
        _dispatch.select(op, "reference", CUDA, torch.float32)


def test_a_reason_that_all_ops_share_is_told_once(monkeypatch):
    """One warning, whichever op asks first."""
    monkeypatch.setattr(_native, "WHY_NOT", "it was not built")
    message = "all C\\+\\+ ops: using the slower backend 'reference', because it was not built"
    with pytest.warns(PerformanceWarning, match=message):
        _dispatch.select("highway", "auto", CPU, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op in ("char_cnn", "projected_lstm"):
            _dispatch.select(op, "auto", CPU, torch.float32)


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_a_precision_that_is_slower_here_says_so_once(monkeypatch):
    """For all ops; not where the measured table has it as fast as float32, nor where a backend is named."""
    slower(monkeypatch, "float16")
    message = "precision='float16' is slower than float32 with the instruction set in use"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _dispatch.select("highway", "native", CPU, torch.float32, "float16")
        _dispatch.select("highway", "auto", CPU, torch.float32, "bfloat16")
        _dispatch.select("highway", "auto", CPU, torch.float32, "int8")
    with pytest.warns(PerformanceWarning, match=message):
        _dispatch.select("highway", "auto", CPU, torch.float32, "float16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _dispatch.select("projected_lstm", "auto", CPU, torch.float32, "float16")


def test_an_op_without_a_kernel_of_the_cpu_is_silent_there():
    """Plain torch is as fast."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op in ("scalar_mix", "unique_rows"):
            assert _dispatch.select(op, "auto", CPU, torch.float32) == "reference"
        _dispatch.select("negative_sampling", "reference", CPU, torch.float32)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "meta"])
def test_explain_takes_a_devices_name(device):
    """The answer is the same as for the device itself, and for float32 if no dtype is given."""
    for op in ops.op_names():
        assert ops.explain(op, device) == ops.explain(op, torch.device(device), torch.float32)


def test_explain_without_a_gpu_says_that_there_is_none(monkeypatch):
    """A torch without CUDA raises an AssertionError if it is asked for a GPU's capability."""
    pretend_gpu(monkeypatch, None)
    choice = ops.explain("char_cnn", "cuda")
    assert choice.backend == "reference"
    assert choice.refusals["triton"] == "torch sees no CUDA device here"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("softmax", "cpu"), r"op must be one of adagrad, .*; got 'softmax'"),
        (("highway", "gpu"), "device must be like .*; got 'gpu'"),
        (("highway", None), "device must be like .*; got None"),
        (("highway", "cpu", torch.float32, "int4"), "precision must be one of .*; got 'int4'"),
    ],
)
def test_explain_refuses_what_it_does_not_know(arguments, words):
    with pytest.raises(ElmoFastError, match=words):
        ops.explain(*arguments)
    with pytest.raises(ElmoFastError, match="op must be one of"):
        ops.backend_for("softmax", "native")
    with pytest.raises(ElmoFastError, match="highway: backend must be one of auto, native, triton, reference; got 'a'"):
        _dispatch.select("highway", "a", CPU, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("device", "module"), [("cpu", _native), ("cuda", _triton)])
def test_a_module_cast_to_16_bit_is_told_of_precision(monkeypatch, device, module, dtype):
    """`.half()` leaves the kernels; the warning names what to do in its place."""
    monkeypatch.setattr(_native, "WHY_NOT", None)
    pretend_gpu(monkeypatch, (9, 0))
    name = str(dtype).removeprefix("torch.")
    message = module.unsupported(torch.device(device), dtype, "float32")
    assert f'not {name}; keep them in float32 and pass precision="{name}"' in message
