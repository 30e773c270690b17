"""Shared by all Triton kernels: errors of one sentence, the guard of the interpreter, plain products, memory that runs
out."""

import sys
import sysconfig
import threading

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _dispatch, _triton
from tests.support.backends import device_of, pretend_gpu

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize(
    ("actual", "served"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((10, 0), True)], ids=str
)
def test_a_gpu_older_than_sm_80_is_refused(monkeypatch, actual, served):
    pretend_gpu(monkeypatch, actual)
    why = _triton.unsupported(CUDA, torch.float32, "float16")
    if served:
        assert why is None
    else:
        assert why == "the Triton kernels need compute capability 8.0 (sm_80) or newer, and this GPU has 7.5"


def test_other_dtypes_and_devices_are_refused(monkeypatch):
    pretend_gpu(monkeypatch, (9, 0))
    assert "float32 tensors, not float64" in _triton.unsupported(CUDA, torch.float64, "float32")
    assert "on cpu" in _triton.unsupported(torch.device("cpu"), torch.float32, "float32")
    assert "on meta" in _triton.unsupported(torch.device("meta"), torch.float32, "float32")
    monkeypatch.setattr(_triton, "WHY_NOT", "Triton is missing")
    assert _triton.unsupported(CUDA, torch.float32, "float32") == "Triton is missing"


@pytest.fixture
def hopper(monkeypatch):
    """An H100 with compiled kernels."""
    pretend_gpu(monkeypatch, (9, 0))
    _triton.why_no_launcher.cache_clear()
    yield
    _triton.why_no_launcher.cache_clear()


def why_not():
    return _triton.unsupported(CUDA, torch.float32, "float16")


def test_triton_without_a_c_compiler_is_refused(hopper, monkeypatch, tmp_path):
    """Triton builds its launcher with $CC, else gcc or clang; without them nothing is launched, and it is said why."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is none; install gcc or clang" in why_not()
    for name in ("clang", "gcc", "other"):
        (tmp_path / name).touch(0o755)
        _triton.why_no_launcher.cache_clear()
        if name != "other":
            assert why_not() is None, name
            (tmp_path / name).unlink()
    monkeypatch.setenv("CC", "other")
    _triton.why_no_launcher.cache_clear()
    assert why_not() is None
    for named in ("", "other -m64"):  # Triton takes all of it for the name of a program
        monkeypatch.setenv("CC", named)
        _triton.why_no_launcher.cache_clear()
        assert f"$CC is {named!r}, which is not a program" in why_not()


def test_triton_without_pythons_headers_is_refused(hopper, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", sys.executable)
    real = sysconfig.get_paths
    monkeypatch.setattr(sysconfig, "get_paths", lambda **scheme: real(**scheme) | {"include": str(tmp_path)})
    assert f"includes Python.h, which {tmp_path} lacks" in why_not()
    (tmp_path / "Python.h").touch()
    _triton.why_no_launcher.cache_clear()
    assert why_not() is None


def test_torch_compile_traces_the_question(monkeypatch):
    """One graph and no warning on a GPU: neither a cached function nor a look at files is traced."""
    monkeypatch.setattr(_triton, "INTERPRETED", False)
    monkeypatch.setitem(_triton._CAPABILITIES, 0, (9, 0))

    def f(x):
        return x + 1 if _triton.unsupported(torch.device("cuda:0"), torch.float32, "float16") is None else x

    assert torch.compile(f, fullgraph=True, backend="eager")(torch.zeros(1)) == 1


def test_a_torch_for_amd_is_refused_by_name(hopper, monkeypatch):
    """Its GPUs are devices of the type "cuda" as well."""
    assert why_not() is None
    monkeypatch.setattr(torch.version, "hip", "6.4.1")
    message = "are for NVIDIA's GPUs, and this torch is for AMD's (ROCm 6.4.1)"
    assert why_not() == f"the Triton kernels {message}"
    assert _dispatch.explain("highway", CUDA).backend == "reference"


def test_auto_on_the_cpu_never_takes_the_interpreter():
    """It serves when it is named, as tests do; and that it does not otherwise is worth no warning."""
    for op in _dispatch.op_names():
        choice = _dispatch.explain(op, torch.device("cpu"), torch.float32)
        assert choice.backend in ("native", "reference"), op


@pytest.mark.skipif(not _triton.INTERPRETED, reason="the kernels run compiled here")
def test_the_interpreter_is_given_no_bfloat16():
    """Its dots multiply bit patterns and say nothing: launch raises before."""
    from elmo_fast.ops.projected_lstm import forward_kernels

    x = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="multiplies the bit patterns of bfloat16"):
        _triton.launch(forward_kernels.projected_lstm_to_step_order_kernel, (1,), x)


def test_an_empty_grid_starts_nothing():
    def kernel():
        raise AssertionError("started")

    _triton.launch(kernel, (3, 0))


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            RuntimeError("at 3:4:\n x = y\n     ^\nNameError"),
            ElmoFastError,
            r"RuntimeError: NameError\); `elmo-fast check`",
        ),
        (
            ValueError("out of resource"),
            ElmoFastError,
            r'some_kernel .* on cpu \(ValueError: out of .*backend="reference"',
        ),
        (torch.OutOfMemoryError("no memory"), torch.OutOfMemoryError, "^no memory$"),
    ],
)
def test_a_kernel_that_cannot_be_compiled_or_started_is_named(error, raised, message):
    """In one sentence: why, what tells more, and the way without it. A shortage of memory is told where it is known."""

    class Kernel:
        __name__ = "some_kernel"

        def __getitem__(self, grid):
            raise error

    with pytest.raises(raised, match=message):
        _triton.launch(Kernel(), (1,), torch.ones(1))


@pytest.mark.parametrize("grid", [(1, 2**16), (1, 1, 2**16), (1, 2**17, 3)], ids=str)
def test_a_grid_longer_than_a_gpu_takes_is_refused(grid):
    """Limits of the second and third axis; the first may have more blocks."""

    class Kernel:
        __name__, runs = "some_kernel", 0

        def __getitem__(self, grid):
            self.runs += 1
            return lambda *arguments, **constants: None

    kernel, x = Kernel(), torch.ones(1)
    with pytest.raises(
        ElmoFastError, match=rf"some_kernel would need {' x '.join(map(str, grid))} blocks.*takes 65535"
    ):
        _triton.launch(kernel, grid, x)
    if _triton.INTERPRETED:
        _triton.launch(kernel, (2**20, 2**16 - 1, 2**16 - 1), x)
        assert kernel.runs == 1


@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("batched", [False, True])
def test_products_accumulate_in_float32(backend, batched):
    """4096 ones: float16 sums would stop at 2048."""
    device = device_of(backend)
    a, b = torch.ones(2, 3, 4096, device=device).half(), torch.ones(2, 4096, 5, device=device).half()
    a, b = (a, b) if batched else (a[0], b[0])
    for dtype in (torch.float16, torch.float32):
        actual = _triton.matmul(a, b, dtype)
        assert actual.dtype == dtype
        assert (actual == 4096).all()


@pytest.mark.parametrize("chosen", [(True, True), (False, True), (False, False)], ids=str)
def test_the_users_settings_of_products_are_restored(chosen):
    """Sums in 16 bit, and whether cuBLAS may split a product; only the first is changed, within a product alone."""
    flags = torch.backends.cuda.matmul
    names = [f"allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")]
    state = lambda: [(getattr(flags, name), getattr(flags, f"{name}_split_k")) for name in names]  # noqa: E731
    before = state()
    try:
        for name in names:
            setattr(flags, name, chosen)
        with _triton.parts_in_float32:
            assert state() == [(False, chosen[1])] * 2
        assert state() == [chosen] * 2
        with pytest.raises(RuntimeError):
            _triton.matmul(torch.ones(2, 3).half(), torch.ones(2, 3).half(), torch.float16)
        assert state() == [chosen] * 2
    finally:
        for name, both in zip(names, before, strict=True):
            setattr(flags, name, both)


def test_threads_that_multiply_at_once_leave_torchs_flags_as_they_were():
    """One ends while the other multiplies: its product still adds in float32, and the user's flags come back."""
    flags, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    entered, left, inside = threading.Event(), threading.Event(), []

    def multiply():
        with _triton.parts_in_float32:
            entered.set()
            left.wait(10)
            inside.append(flags.allow_fp16_reduced_precision_reduction)

    try:
        flags.allow_fp16_reduced_precision_reduction = True
        with _triton.parts_in_float32:
            thread = threading.Thread(target=multiply)
            thread.start()
            entered.wait(10)
        left.set()
        thread.join()
        assert inside == [False]
        assert flags.allow_fp16_reduced_precision_reduction
    finally:
        flags.allow_fp16_reduced_precision_reduction = before
