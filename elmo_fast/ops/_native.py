"""Compiled extension, loaded once, or one sentence why it could not be loaded; how this CPU computes its products."""

import importlib.util
import pathlib
import platform
from typing import TYPE_CHECKING, NamedTuple

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
        from elmo_fast import _C as C
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


_VECTORS = "vectors of 16 bytes, which every CPU has"
_WIDENED = "16-bit weights, widened to float32 in registers: half the memory traffic of float32, the same arithmetic"
_SLOW_PAIRS = "; pairs (AVX512_BF16), which this CPU has, are slower on Intel's: ELMO_FAST_ISA=avx512_bf16 takes them"
_PAIRS = "half the memory traffic of float32, twice the products per instruction"
_QUARTER = "a quarter of the memory traffic of float32"
_BYTES = f"bytes widened to 16 bits: {_QUARTER}, up to twice the products per instruction"
_VNNI = f"bytes (VNNI): {_QUARTER}, four times the products per instruction"


class InstructionSet(NamedTuple):
    """Matrix products of one instruction set; those of float16 are widened in all of them."""

    float32: str
    int8: str
    bfloat16: str = _WIDENED
    float16: str = _WIDENED
    slower: tuple[str, ...] = ()
    """precisions that are slower than float32 in batches of 32 (`ELMO_FAST_ISA=... make bench CASE=threads`)"""


# In the order of csrc/common/isa.cpp, slowest first.
INSTRUCTION_SETS = {
    "generic": InstructionSet(_VECTORS, _BYTES, slower=("bfloat16", "float16")),
    "avx2": InstructionSet("AVX2 and FMA", _BYTES),
    "avx2_vnni": InstructionSet("AVX2 and FMA", _VNNI),
    "avx512": InstructionSet("AVX-512", _BYTES),
    "avx512_vnni": InstructionSet("AVX-512", _VNNI),
    "avx512_bf16": InstructionSet("AVX-512", _VNNI, f"pairs of bfloat16 (AVX512_BF16): {_PAIRS}"),
    "amx": InstructionSet(
        "AVX-512",
        f"tiles of bytes (AMX): {_QUARTER}, many times the products per instruction",
        "tiles of bfloat16 (AMX): half the memory traffic of float32, many times the products per instruction",
    ),
}


def why_slower_on_cpu(precision: str) -> str | None:
    """Return one sentence if many rows were measured to be slower than in float32, else None."""
    on_arm = platform.machine() in ("aarch64", "arm64")
    if C is None or on_arm or precision not in INSTRUCTION_SETS[C.isa()].slower:
        return None
    return (
        f"precision={precision!r} is slower than float32 with the instruction set in use "
        f'({products_on_cpu(precision)}); use precision="float32"'
    )


def products_on_cpu(precision: str) -> str:
    """Describe how this CPU computes the matrix products of a precision."""
    if C is not None:
        how = str(getattr(INSTRUCTION_SETS[C.isa()], precision))
        left_out = C.isa() == "avx512_vnni" and "avx512_bf16" in C.isas()
        return how + (_SLOW_PAIRS if left_out and precision == "bfloat16" else "")
    if precision == "float32":
        return "torch"
    how = "multiplied in float64" if precision == "int8" else "then multiplied in float32: no faster than float32"
    return f"operands rounded, {how}"
