"""The kernels of csrc/<op>/*.cu as nvcc compiles them: their launchers run as written, on a CUDA runtime of our own
(cuda_runtime.cpp), and what they launch is executed by the emulator."""

import ctypes
import functools
import hashlib
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ptx.blocks import Kernel, kernel
from tests.ptx.driver import CACHE, SHARED
from tests.ptx.launch import Launch
from tests.ptx.program import PtxError
from tools.cuda_check import readable

HERE, CSRC = pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[2] / "csrc"
SOURCES = [*sorted(CSRC.glob("*/*.cu")), HERE / "cuda_runtime.cpp", HERE / "cuda_calls.cpp"]
FLAGS = ("-std=c++20", "-O3", "-gencode", "arch=compute_80,code=compute_80", "-cudart", "none", "-Xcompiler", "-fPIC")
NOT_ASKED = 48 * 1024  # bytes of shared memory that a block may have without cudaFuncSetAttribute
WHY_NOT = None if shutil.which("nvcc") else "nvcc, the CUDA compiler, is not installed"
NEEDED = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@functools.cache
def built() -> pathlib.Path:
    """The folder with the launchers' library and the PTX of each .cu; made once for each content."""
    digest = hashlib.sha256(subprocess.run(["nvcc", "--version"], capture_output=True, check=True).stdout)
    digest.update(repr(FLAGS).encode())
    for path in sorted({*SOURCES, *CSRC.rglob("*.h"), *CSRC.rglob("*.cuh")}):
        digest.update(path.read_bytes())
    folder = CACHE / f"cuda_{digest.hexdigest()[:32]}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            new = pathlib.Path(scratch) / "new"
            new.mkdir()
            keep = ("-keep", "-keep-dir", new, "-shared", "-o", new / "launchers.so")
            done = subprocess.run(["nvcc", *FLAGS, f"-I{CSRC}", *keep, *SOURCES], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            for path in new.iterdir():
                if path.suffix not in (".so", ".ptx"):
                    path.unlink()
            try:
                new.rename(folder)
            except OSError:
                if not folder.is_dir():  # of another process, which was faster
                    raise
    return folder


@functools.cache
def compiled(name: str) -> Kernel:
    """The kernel of that mangled name, called as in the source."""
    text = next(text for path in sorted(built().glob("*.ptx")) if name in (text := path.read_text(encoding="utf-8")))
    made = kernel(text, name)
    return made._replace(program=made.program._replace(name=readable(name).replace(", ", ",")))


LAUNCHED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, *[ctypes.POINTER(ctypes.c_uint)] * 2, *[ctypes.c_size_t] * 2, ctypes.c_void_p
)


class Launchers:
    """The library, with its launches on `device`, which has `launch(Launch)`."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(built() / "launchers.so"))
        self.library.char_cnn_describe.restype = ctypes.c_void_p
        self.library.sampler_bytes.restype = ctypes.c_int64
        self.callback = LAUNCHED(self.launched)  # kept alive
        self.library.set_device(self.callback, SHARED)
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.error: Exception | None = None
        self.device: Any = None

    def launched(self, name: bytes, grid: Any, block: Any, shared: int, allowed: int, parameter: int) -> int:
        """What the runtime calls: 0, or 1 after an error, which is kept, as no exception may pass through C++."""
        try:
            made = compiled(name.decode())
            needed, size = made.program.static + shared, made.program.parameters[0][2] // 8
            if needed > SHARED or (needed > NOT_ASKED and shared > allowed):
                raise PtxError(f"{made.program.name}: {needed} bytes of shared memory, and {allowed} were asked for")
            if block[1] * block[2] != 1:
                raise PtxError(f"{made.program.name}: only blocks of one dimension are known")
            arguments = [("parameters", ctypes.string_at(parameter, size)), *self.tensors]
            self.device.launch(Launch(made, tuple(grid[:3]), block[0], shared, arguments, independent=True))
        except Exception as error:  # noqa: BLE001 - raised again where the launcher was called
            self.error = error
            return 1
        return 0

    def call(self, function: Callable[..., int], tensors: dict[str, torch.Tensor], *arguments: Any) -> None:
        """Calls a launcher whose kernels may access these tensors alone."""
        self.tensors, self.error = list(tensors.items()), None
        status = function(*arguments)
        if self.error is not None:
            raise self.error
        assert status == 0, f"CUDA error {status}"


@functools.cache
def launchers() -> Launchers:
    return Launchers()


def address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def addresses(tensors: list[torch.Tensor] | None) -> Any:
    return None if tensors is None else (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))


def garbage(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a kernel finds in memory that was only allocated."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else -(2**62), dtype=dtype)


def sample(
    device: Any, num_samples: int, num_words: int, seed: int, offset: int, more: torch.Tensor | None = None,
    limit: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """ids and tries of log_uniform_sample. more: added to seed and offset, on the device; limit: 0 for the op's own."""
    lib = launchers()
    lib.device = device
    given = {"ids": garbage(num_samples, dtype=torch.int64), "tries": garbage(1, dtype=torch.int64)}
    pointers = dict.fromkeys(("seed_more", "offset_more", "bitmap"))
    if more is not None:
        pointers |= {"seed_more": more[:1].clone(), "offset_more": more[1:].clone()}
    if (size := lib.library.sampler_bytes(ctypes.c_int64(num_words))) > 0:
        pointers["bitmap"] = torch.full((size // 4,), -1, dtype=torch.int32)
    given |= {name: tensor for name, tensor in pointers.items() if tensor is not None}
    numbers = (ctypes.c_uint64(n & 2**64 - 1) for n in (num_samples, num_words, seed, offset))
    rest = (*map(address, pointers.values()), address(given["ids"]), address(given["tries"]), ctypes.c_int64(limit))
    lib.call(lib.library.sampler_launch, given, *numbers, *rest)
    return given["ids"], given["tries"][0]


def char_cnn_backward(
    device: Any, grad: torch.Tensor, features: torch.Tensor, winners: torch.Tensor, ids: torch.Tensor,
    embedding: torch.Tensor, weights: list[torch.Tensor], count: torch.Tensor | None = None, tanh: bool = False,
    precision: str = "float32", need_embedding: bool = True, need_weights: bool = True,
) -> tuple[torch.Tensor | None, list[torch.Tensor] | None, list[torch.Tensor] | None]:  # fmt: skip
    """As the op char_cnn_cuda_backward; None for what is not needed."""
    lib = launchers()
    lib.device = device
    shapes = (ctypes.c_int64 * (2 * len(weights)))(*(n for w in weights for n in (w.shape[2], w.shape[0])))
    sizes = (ctypes.c_int64 * 3)()
    numbers = (ctypes.c_int64(n) for n in (*ids.shape, *embedding.shape))
    described = lib.library.char_cnn_describe(*numbers, len(weights), shapes, sizes)
    workspace = {name: garbage(size) for name, size in zip(("table", "filters", "sums"), sizes, strict=True)}
    d_embedding = garbage(*embedding.shape) if need_embedding else None
    d_weights = [garbage(*w.shape) for w in weights] if need_weights else None
    d_biases = [garbage(len(w)) for w in weights] if need_weights else None
    given = {"grad": grad, "features": features, "winners": winners, "ids": ids, "embedding": embedding, **workspace}
    given |= {name: t for name, t in (("count", count), ("d_embedding", d_embedding)) if t is not None}
    for name, each in (("weight", weights), ("d_weight", d_weights), ("d_bias", d_biases)):
        given |= {f"{name} {i}": t for i, t in enumerate(each or ())}
    lib.call(
        lib.library.char_cnn_launch, given, ctypes.c_void_p(described),
        *map(address, (count, grad, features, winners, ids)), ctypes.c_bool(ids.dtype == torch.int64),
        ctypes.c_bool(tanh), ("float32", "bfloat16", "float16").index(precision),
        *map(address, (embedding, d_embedding)), *map(addresses, (weights, d_weights, d_biases)),
        *map(address, workspace.values()),
    )  # fmt: skip
    return d_embedding, d_weights, d_biases
