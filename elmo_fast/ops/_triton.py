"""Shared by all Triton backends: implement ops, launch kernels, check devices and query the GPU.

Triton is optional.
"""

import functools
import os
import pathlib
import shutil
import sysconfig
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, install_command
from elmo_fast.ops import _schemas
from elmo_fast.ops._native import not_float32

WHY_NOT: str | None = None
INTERPRETED = False
try:
    import triton

    INTERPRETED = bool(triton.knobs.runtime.interpret)
except ImportError as _error:
    WHY_NOT = f"Triton is missing ({_error}); it comes with torch for CUDA, or with {install_command('gpu')}"

# Triton's interpreter runs on the CPU, whose key is C++'s: then its ops are in a namespace of their own.
NAMESPACE = "elmo_fast_interpreted" if INTERPRETED else _schemas.NAMESPACE
LIBRARY = _schemas.define(NAMESPACE) if INTERPRETED else _schemas.LIBRARY

python_functions: dict[str, Callable[..., Any]] = {}
"""op -> the function that it runs on a GPU; tests call it where dispatched fake tensors would reach the op's fake"""
saved_by: dict[str, Callable[[Any], list[Tensor]]] = {}
"""op -> the function that allocates what it saves on a GPU for its backward pass"""


def launch(
    kernel: Any,
    grid: Sequence[int],
    *arguments: Any,
    num_warps: int = 4,
    num_stages: int = 3,
    launch_pdl: int = False,
    **constants: Any,
) -> None:
    """Run a Triton kernel over `grid`: positional arguments first, its tl.constexpr ones by name.

    A positional argument may be a tuple of tensors.

    launch_pdl: the kernel begins with `_kernels.after_previous`, so its blocks may start before the previous launch has
    ended (programmatic dependent launch; before Hopper an ordinary launch). An empty grid runs nothing. Raises
    RuntimeError on bfloat16 under the interpreter, which would multiply bit patterns.
    """
    options: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages}
    if launch_pdl and _launches_early(next(a for a in arguments if isinstance(a, Tensor))):
        options["launch_pdl"] = True
    start(kernel, tuple(grid), arguments, constants, options)


# Blocks of the second and third axis of a grid; the first takes 2^31 - 1.
MOST_BLOCKS = 2**16 - 1


def start(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Start a kernel with the arguments that `launch` has prepared; every launch passes through here.

    Raises ElmoFastError if the kernel cannot be compiled or started, or if the grid is longer than a GPU takes, which
    CUDA would call an invalid argument.
    """
    if not all(grid):
        return
    if max(grid[1:], default=0) > MOST_BLOCKS:
        raise ElmoFastError(
            f"the Triton kernel {kernel.__name__} would need {' x '.join(map(str, grid))} blocks for these sizes, "
            f"and a GPU takes {MOST_BLOCKS} in the second and third place; give fewer rows, words or sentences, "
            'or use backend="reference"'
        )
    tensors = [t for a in arguments for t in (a if isinstance(a, tuple) else (a,)) if isinstance(t, Tensor)]
    if INTERPRETED and any(t.dtype == torch.bfloat16 for t in tensors):
        raise RuntimeError("TRITON_INTERPRET=1 multiplies the bit patterns of bfloat16; use float16 or float32")
    try:
        with torch.cuda.device_of(tensors[0]):
            kernel[grid](*arguments, **constants, **options, enable_fp_fusion=False)  # the interpreter ignores options
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise ElmoFastError(
            f"the Triton kernel {kernel.__name__} could not be compiled or started on {tensors[0].device} "
            f"({type(error).__name__}: {reason}); `elmo-fast check` tries every kernel of this GPU, and "
            'backend="reference" runs without them'
        ) from error


def _launches_early(tensor: Tensor) -> bool:
    """Return whether this tensor's GPU supports programmatic dependent launch."""
    return tensor.is_cuda and (capability(tensor.device.index) or (0, 0)) >= (9, 0)


@functools.cache
def why_no_launcher() -> str | None:
    """Explain in one sentence why Triton cannot build the C module that starts its kernels, or return None.

    It looks for compiler and headers as Triton does.
    """
    if WHY_NOT is not None or triton.knobs.build.impl is not None:
        return WHY_NOT
    named = os.environ.get("CC")
    if named is not None and shutil.which(named) is None:
        return (
            f"Triton needs a C compiler, but $CC is {named!r}, which is not a program; set it to one, without options"
        )
    if named is None and shutil.which("gcc") is None and shutil.which("clang") is None:
        return "Triton needs a C compiler, but there is none; install gcc or clang, or set $CC to another one"
    # Where Debian's Python uses its own scheme, posix_local, Triton uses posix_prefix.
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    folder = sysconfig.get_paths(scheme=scheme)["include"]
    if not (pathlib.Path(folder) / "Python.h").is_file():
        return f"Triton compiles C that includes Python.h, which {folder} lacks; install Python's headers (python3-dev)"
    return None


_CAPABILITIES: dict[int | None, tuple[int, int] | None] = {}  # torch.compile warns about functools.cache, not of a dict


def capability(index: int | None) -> tuple[int, int] | None:
    """Return the compute capability of a GPU, queried once; None if torch sees none."""
    if index not in _CAPABILITIES:
        _CAPABILITIES[index] = torch.cuda.get_device_capability(index) if torch.cuda.is_available() else None
    return _CAPABILITIES[index]


def _no_gpu(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"the Triton kernels take tensors on a CUDA device, and these are on {device.type}"
    if (rocm := torch.version.hip) is not None:  # torch for AMD GPUs names them "cuda" as well
        return f"the Triton kernels are for NVIDIA's GPUs, and this torch is for AMD's (ROCm {rocm})"
    if (version := capability(device.index)) is None:
        return "torch sees no CUDA device here"
    if version < (8, 0):
        has = ".".join(map(str, version))
        return f"the Triton kernels need compute capability 8.0 (sm_80) or newer, and this GPU has {has}"
    return None


def unsupported(
    device: torch.device, dtype: torch.dtype, precision: str, dtypes: Sequence[torch.dtype] = (torch.float32,)
) -> str | None:
    """Explain in one sentence why the Triton kernels cannot serve this device, dtype and precision, or return None."""
    if WHY_NOT is not None:
        return WHY_NOT
    if not (INTERPRETED and device.type in ("cpu", "cuda")) and (why := _no_gpu(device)):
        return why
    if dtype not in dtypes:
        names = " or ".join(str(each).removeprefix("torch.") for each in dtypes)
        return f"the Triton kernels take {names} tensors, not {not_float32(dtype)}"
    if precision == "int8":
        return "the Triton kernels do not support int8"
    if INTERPRETED and (precision == "bfloat16" or dtype == torch.bfloat16):
        return "Triton's interpreter multiplies the bit patterns of bfloat16; use float16 or float32"
    # torch.compile cannot trace access to files, and asks for a C compiler itself.
    return None if INTERPRETED or torch.compiler.is_compiling() else why_no_launcher()


# Of an H100 or H200, minus four for a round number of blocks. Every GPU uses the tiles chosen for it.
MULTIPROCESSORS = 128

# Bytes of shared memory for a block: 99 KiB on consumer GPUs (sm_86, 89, 120), 163 on sm_80, 227 on sm_90 and 100.
SMALL = 100 * 1024


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory available to a block; an H100's without a GPU, for tests of launches."""
    if not torch.cuda.is_available():
        return 227 * 1024
    available: int = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", SMALL)
    return available


def is_small(device: torch.device) -> bool:
    """Return whether a block has little shared memory, as on consumer GPUs.

    Their tensor cores are fed from registers.
    """
    return shared_memory(device) <= SMALL


def reads_wide_tiles(device: torch.device) -> bool:
    """Return whether tensor cores read from shared memory, and a block has 200 KiB of it (sm_90 and 100).

    On others a tile of 128 x 256 numbers takes more registers than there are.
    """
    return shared_memory(device) > 200 * 1024


def input_precision(dtype: torch.dtype, device: torch.device) -> str:
    """Return the `input_precision` of a tl.dot with operands of `dtype`, float32 or 16-bit.

    float32 is three products of tf32 parts on tensor cores, which keep float32's tolerances (docs/gpu.md). On small
    GPUs, where tensor cores are no faster at tf32 than the other units at float32, it is an exact product.
    """
    return "tf32x3" if dtype == torch.float32 and not is_small(device) else "ieee"


def implements(name: str) -> bool:
    """Return whether Triton implements the op of this name."""
    return name in python_functions


def implement(name: str, run: Callable[[Any], Any], saved: Callable[[Any], list[Tensor]] | None = None) -> None:
    """Implement an op on a GPU, or on the CPU by Triton's interpreter.

    run: launches the kernels, given the arguments as a tuple with the schema's names; an op that writes its arguments
    ("Tensor(a!) x") increments their versions itself. saved: allocates what the op returns for its backward pass, from
    the same arguments, where the schema has `saved`.
    """
    arguments = _schemas.arguments_of(name)
    python_functions[name] = lambda *args, **kwargs: run(arguments(*args, **kwargs))
    LIBRARY.impl(name, python_functions[name], "CompositeExplicitAutograd" if INTERPRETED else "CUDA")
    if saved is not None:
        saved_by[name] = saved


class _PartsInFloat32:
    """Context in which cuBLAS adds the parts of a split 16-bit product in float32; whether it may split is unchanged.

    torch's flags for that are global. Several threads may be within it at once: the first saves the user's flags, the
    last restores them.
    """

    _NAMES = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")

    def __init__(self) -> None:
        self._lock, self._threads, self._before = threading.Lock(), 0, list[tuple[bool, bool]]()

    def __enter__(self) -> None:
        flags = torch.backends.cuda.matmul
        with self._lock:
            if self._threads == 0:
                self._before = [(getattr(flags, name), getattr(flags, f"{name}_split_k")) for name in self._NAMES]
                for name, (_, split) in zip(self._NAMES, self._before, strict=True):
                    setattr(flags, name, (False, split))
            self._threads += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                for name, both in zip(self._NAMES, self._before, strict=True):
                    setattr(torch.backends.cuda.matmul, name, both)


parts_in_float32 = _PartsInFloat32()


def matmul(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply a [(R,) M, K] · b [(R,) K, N] of one 16-bit dtype or float32, accumulated in float32.

    The result has dtype `dtype`. It is torch's own product (cuBLAS), which no kernel of ours would beat. float32
    operands obey torch.backends.cuda.matmul, which is exact unless the user allowed tf32. Parts of a 16-bit product are
    never added in 16 bits, although torch's default allows it.
    """
    if a.dtype == dtype == torch.float32:
        return a @ b
    if a.dtype == dtype:
        with parts_in_float32:
            return a @ b
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=dtype) if a.dim() == 2 else torch.bmm(a, b, out_dtype=dtype)
    return (a.float() @ b.float()).to(dtype)


def add_product(out: Tensor, a: Tensor, b: Tensor, *, accumulate: bool) -> None:
    """Compute out [M, N] float32 = a [M, K] · b [K, N] or, with `accumulate`, += it, in place; see `matmul`."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        if accumulate:
            torch.addmm(out, a, b, out_dtype=torch.float32, out=out)
        else:
            torch.mm(a, b, out_dtype=torch.float32, out=out)
    elif accumulate:
        out.addmm_(a.float(), b.float())
    else:
        torch.mm(a.float(), b.float(), out=out)


class Tiles(NamedTuple):
    """Rows, columns and depth of a product's tile, and the warps and stages that its kernel is compiled for."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        """Return warps and stages as options of `launch`."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


def cdiv(a: int, b: int) -> int:
    """ceil(a / b)."""
    return -(-a // b)


def ceil_power_of_two(n: int, least: int = 16, most: int = 128) -> int:
    """Return the smallest power of two >= n, clamped to least..most."""
    return min(most, max(least, 1 << max(0, n - 1).bit_length()))
