"""Compiled extension, loaded once, or one sentence why it could not be loaded."""

import importlib.util
import pathlib
from typing import TYPE_CHECKING

import torch

from elmo_fast.errors import reinstall_command
from elmo_fast.op_choices import PRECISIONS
from elmo_fast.ops._schemas import DIGEST

if TYPE_CHECKING:  # elmo_fast/_C.pyi has its types
    from elmo_fast import _C as C
else:
    C = None
WHY_NOT: str | None = None


def _has_these_schemas() -> bool:
    """Return whether the extension's file holds the digest of the schemas; one that is missing says so when imported.

    It is not loaded to find out: one that defines other ops, as all did once, ends the process.
    """
    spec = importlib.util.find_spec("elmo_fast._C")
    return spec is None or spec.origin is None or DIGEST.encode() in pathlib.Path(spec.origin).read_bytes()


try:
    if _has_these_schemas():
        from elmo_fast import _C as C  # noqa: F401 - the name of this module that others read
    else:
        WHY_NOT = (
            "the compiled extension elmo_fast._C was built for other schemas (ops/_schemas.py); "
            f"rebuild it: {reinstall_command()}"
        )
except (ImportError, OSError) as _error:
    _note = pathlib.Path(__file__).parent.parent / "_build_failure.txt"
    _lines = _note.read_text(encoding="utf-8").splitlines() if _note.is_file() else [str(_error)]
    _reason, _advice = [*_lines, "install a C++20 compiler"][:2]
    WHY_NOT = f"the compiled extension elmo_fast._C is missing ({_reason}); {_advice}, then run {reinstall_command()}"


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Explain in one sentence why the C++ kernels cannot serve this device, dtype and precision, or return None."""
    if WHY_NOT is not None:
        return WHY_NOT
    if device.type != "cpu":
        return f"the C++ kernels take tensors on the CPU, and these are on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"the C++ kernels take float32 or float64 tensors, not {not_float32(dtype)}"
    if dtype == torch.float64 and precision != "float32":
        return f"the C++ kernels multiply float64 tensors as they are, and precision={precision!r} rounds them"
    return None


def not_float32(dtype: torch.dtype) -> str:
    """Return the name of a dtype that kernels do not take; for one a module was cast to, also what to do instead."""
    name = str(dtype).removeprefix("torch.")
    return f'{name}; keep them in float32 and pass precision="{name}"' if name in PRECISIONS else name


def only_float32(kernels: str, dtype: torch.dtype) -> str | None:
    """Explain in one sentence why kernels for float32 cannot take tensors of this dtype, or return None."""
    return None if dtype == torch.float32 else f"{kernels} take float32 tensors, not {not_float32(dtype)}"


def of_amd(kernels: str) -> str | None:
    """Explain in one sentence why kernels for NVIDIA GPUs cannot run with this torch, or return None.

    torch for AMD GPUs names them "cuda" as well.
    """
    if (version := torch.version.hip) is None:
        return None
    return f"{kernels} are for NVIDIA's GPUs, and this torch is for AMD's (ROCm {version})"


def no_gpu_for(kernels: str, device: torch.device) -> str | None:
    """Explain in one sentence why this device is not a GPU that can run these kernels, or return None."""
    if device.type != "cuda":
        return f"{kernels} take tensors on a CUDA device, and these are on {device.type}"
    if (why := of_amd(kernels)) is not None:
        return why
    if (version := capability(device.index)) is None:
        return "torch sees no CUDA device here"
    if version < (8, 0):
        return f"{kernels} need compute capability 8.0 (sm_80) or newer, and this GPU has {version[0]}.{version[1]}"
    return None


_CAPABILITIES: dict[int | None, tuple[int, int] | None] = {}  # torch.compile warns about functools.cache, not of a dict


def capability(index: int | None) -> tuple[int, int] | None:
    """Return the compute capability of a GPU, queried once; None if torch sees none."""
    if index not in _CAPABILITIES:
        _CAPABILITIES[index] = torch.cuda.get_device_capability(index) if torch.cuda.is_available() else None
    return _CAPABILITIES[index]
