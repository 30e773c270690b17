"""Loads the compiled extension once, or remembers in one sentence why it could not."""

import pathlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from elmo_fast.op_choices import PRECISIONS
from elmo_fast.ops._autograd import Backward, differentiate, register_fake

C: ModuleType | None = None
WHY_NOT: str | None = None

try:
    from elmo_fast import _C as C  # type: ignore[no-redef]
except ImportError as _error:
    _note = pathlib.Path(__file__).parent.parent / "_build_failure.txt"
    _told = _note.read_text(encoding="utf-8").splitlines() if _note.is_file() else [str(_error)]
    _reason, _advice = [*_told, "install a C++20 compiler"][:2]
    WHY_NOT = (
        f"the compiled extension elmo_fast._C is missing ({_reason}); "
        f"{_advice} and reinstall elmo-fast with --no-build-isolation"
    )


def has(name: str) -> bool:
    """Whether the extension is installed and has the op; one that lacks it is older than the package and not used."""
    global C, WHY_NOT
    if C is not None and not hasattr(torch.ops.elmo_fast, name):
        C = None
        WHY_NOT = f"the compiled extension elmo_fast._C is older than the package (no {name}); build it again"
    return C is not None


def describe(name: str, fake: Callable[[Any], Any], backward: Backward | None = None) -> None:
    """Registers the fake and, given `backward`, the autograd of an op whose schema is in csrc/library.cpp.

    fake: as `_autograd.register_fake`'s.
    """
    if has(name):
        register_fake(f"elmo_fast::{name}", fake)
        if backward is not None:
            differentiate(f"elmo_fast::{name}", backward)


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Why the C++ kernels cannot serve this device, dtype and precision, or None."""
    if WHY_NOT is not None:
        return WHY_NOT
    if device.type != "cpu":
        return f"the C++ kernels serve tensors on the CPU, and these are on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"the C++ kernels take float32 or float64 tensors, not {not_float32(dtype)}"
    if dtype == torch.float64 and precision != "float32":
        return f"the C++ kernels multiply float64 tensors as they are, and precision={precision!r} rounds them"
    return None


def why_no_cuda() -> str | None:
    """Why the extension has no CUDA C++ kernels, in one sentence, or None if it has."""
    if C is None or (why := of_amd("the CUDA kernels")) is not None:
        return WHY_NOT if C is None else why
    return None if C.has_cuda else f"the compiled extension elmo_fast._C has no CUDA kernels: {C.why_no_cuda}"


def not_float32(dtype: torch.dtype) -> str:
    """The name of a dtype that kernels refuse; for one that a module was cast to, also what to do instead."""
    name = str(dtype).removeprefix("torch.")
    return f'{name}; keep them float32 and say precision="{name}"' if name in PRECISIONS else name


def only_float32(kernels: str, dtype: torch.dtype) -> str | None:
    """Why kernels for float32 cannot take tensors of this dtype, or None."""
    return None if dtype == torch.float32 else f"{kernels} take float32 tensors, not {not_float32(dtype)}"


def of_amd(kernels: str) -> str | None:
    """Why kernels for NVIDIA's GPUs cannot run with this torch, which calls AMD's "cuda" as well, or None."""
    if (version := torch.version.hip) is None:
        return None
    return f"{kernels} are for NVIDIA's GPUs, and this torch is for AMD's (ROCm {version})"


def no_gpu_for(kernels: str, device: torch.device) -> str | None:
    """Why this device is no GPU that can run these kernels, or None."""
    if device.type != "cuda":
        return f"{kernels} serve CUDA devices, and these tensors are on {device.type}"
    if (why := of_amd(kernels)) is not None:
        return why
    if (found := capability(device.index)) is None:
        return "torch sees no CUDA device here"
    if found < (8, 0):
        return f"{kernels} need compute capability 8.0 (sm_80) or newer, and this GPU has {found[0]}.{found[1]}"
    return None


_CAPABILITIES: dict[int | None, tuple[int, int] | None] = {}  # torch.compile warns of functools.cache, not of a dict


def capability(index: int | None) -> tuple[int, int] | None:
    """The compute capability of a GPU, asked for once; None where torch sees none."""
    if index not in _CAPABILITIES:
        _CAPABILITIES[index] = torch.cuda.get_device_capability(index) if torch.cuda.is_available() else None
    return _CAPABILITIES[index]


def cuda_unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Why the CUDA C++ kernels cannot serve this device and dtype, or None."""
    if (why := why_no_cuda()) is not None:
        return why
    return no_gpu_for("the CUDA kernels", device) or only_float32("the CUDA kernels", dtype)
