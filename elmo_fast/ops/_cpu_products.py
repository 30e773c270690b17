"""How this CPU computes the matrix products of each precision, by its instruction set."""

import platform
from typing import NamedTuple

from elmo_fast.ops import _native

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
    "neon_bf16": InstructionSet(
        _VECTORS,
        f"bytes (I8MM): {_QUARTER}, four times the products per instruction",
        f"pairs of bfloat16 (BF16): {_PAIRS}",
    ),
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


def on_arm() -> bool:
    """Return whether this CPU is an Arm CPU."""
    return platform.machine() in ("aarch64", "arm64")


def why_slower_on_cpu(precision: str) -> str | None:
    """Return one sentence if many rows were measured to be slower than in float32, else None."""
    if _native.C is None or precision not in INSTRUCTION_SETS[_native.C.isa()].slower or on_arm():
        return None
    return (
        f"precision={precision!r} is slower than float32 with the instruction set in use "
        f'({products_on_cpu(precision)}); use precision="float32"'
    )


def products_on_cpu(precision: str) -> str:
    """Describe how this CPU computes the matrix products of a precision."""
    if _native.C is not None:
        how = str(getattr(INSTRUCTION_SETS[_native.C.isa()], precision))
        left_out = _native.C.isa() == "avx512_vnni" and "avx512_bf16" in _native.C.isas()
        return how + (_SLOW_PAIRS if left_out and precision == "bfloat16" else "")
    if precision == "float32":
        return "torch"
    how = "multiplied in float64" if precision == "int8" else "then multiplied in float32: no faster than float32"
    return f"operands rounded, {how}"
