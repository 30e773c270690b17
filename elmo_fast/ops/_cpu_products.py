"""Matrix products of this CPU, by instruction set and precision, and their measured speeds."""

import platform
from collections.abc import Mapping
from typing import NamedTuple

from elmo_fast.ops import _native

MEASURED_ON = "an AMD EPYC (Zen 5)"
_AS_FAST = 0.95  # smaller differences lie within the spread of the measurement
_VECTORS = "vectors of 16 bytes, which every CPU has"
_WIDENED = "16-bit weights, widened to float32 in registers: half the memory traffic of float32, the same arithmetic"
_PAIRS = "half the memory traffic of float32, twice the products per instruction"
_QUARTER = "a quarter of the memory traffic of float32"
_BYTES = f"bytes widened to 16 bits: {_QUARTER}, up to twice the products per instruction"
_VNNI = f"bytes (VNNI): {_QUARTER}, four times the products per instruction"


class Speed(NamedTuple):
    """Speeds of the LSTMs of the original size, as multiples of float32's."""

    many_rows: float
    """batches of 32"""
    one_row: float
    """one sentence at a time"""


class InstructionSet(NamedTuple):
    """Matrix products of one instruction set."""

    cpus: str
    """first CPUs that have it"""
    float32: str
    int8: str
    bfloat16: str = _WIDENED
    speeds: Mapping[str, Speed] = {}
    """by precision, by `ELMO_FAST_ISA=... make bench CASE=threads` on MEASURED_ON, one thread; absent if unmeasured"""
    of_arm: bool = False


# In the order of csrc/common/isa.cpp, slowest first. The speeds of generic are those of x86-64.
INSTRUCTION_SETS = {
    "generic": InstructionSet(
        "", _VECTORS, _BYTES,
        speeds={"bfloat16": Speed(0.71, 0.9), "float16": Speed(0.37, 0.33), "int8": Speed(1.5, 1.7)},
    ),
    "neon_bf16": InstructionSet(
        "Arm Neoverse V1 and N2, Apple M2", _VECTORS,
        f"bytes (I8MM): {_QUARTER}, four times the products per instruction", f"pairs of bfloat16 (BF16): {_PAIRS}",
        of_arm=True,
    ),
    "avx2": InstructionSet(
        "Intel Haswell, AMD Zen", "AVX2 and FMA", _BYTES,
        speeds={"bfloat16": Speed(1, 1.7), "float16": Speed(1, 1.7), "int8": Speed(1.4, 3.1)},
    ),
    "avx2_vnni": InstructionSet(
        "Intel Alder Lake, AMD Zen 5", "AVX2 and FMA", _VNNI,
        speeds={"bfloat16": Speed(1, 1.7), "float16": Speed(1, 1.7), "int8": Speed(3.3, 4.5)},
    ),
    "avx512": InstructionSet(
        "Intel Skylake-SP, AMD Zen 4", "AVX-512", _BYTES,
        speeds={"bfloat16": Speed(1, 1.8), "float16": Speed(1, 1.9), "int8": Speed(1.5, 3.9)},
    ),
    "avx512_vnni": InstructionSet(
        "Intel Cascade Lake, AMD Zen 4", "AVX-512", _VNNI,
        speeds={"bfloat16": Speed(1, 1.9), "float16": Speed(1, 1.8), "int8": Speed(2.9, 4.4)},
    ),
    "avx512_bf16": InstructionSet(
        "Intel Cooper Lake, AMD Zen 4", "AVX-512", _VNNI, f"pairs of bfloat16 (AVX512_BF16): {_PAIRS}",
        speeds={"bfloat16": Speed(1.8, 2), "float16": Speed(1, 1.9), "int8": Speed(2.9, 4.5)},
    ),
    "amx": InstructionSet(
        "Intel Sapphire Rapids", "AVX-512",
        f"tiles of bytes (AMX): {_QUARTER}, many times the products per instruction",
        "tiles of bfloat16 (AMX): half the memory traffic of float32, many times the products per instruction",
    ),
}  # fmt: skip


def on_arm() -> bool:
    """Return whether this CPU is an Arm CPU."""
    return platform.machine() in ("aarch64", "arm64")


def _speeds() -> Mapping[str, Speed]:
    """Return the measured speeds of the instruction set in use."""
    return {} if _native.C is None or on_arm() else INSTRUCTION_SETS[_native.C.isa()].speeds


def why_slower_on_cpu(precision: str) -> str | None:
    """Return one sentence if many rows were measured to be slower than in float32, else None."""
    speed = _speeds().get(precision)
    if speed is None or speed.many_rows >= _AS_FAST:
        return None
    return (
        f"precision={precision!r} is slower than float32 with the instruction set in use "
        f'({products_on_cpu(precision)}); use precision="float32"'
    )


def is_faster_on_cpu(precision: str) -> bool:
    """Return whether this CPU multiplies many rows faster in a 16-bit precision than in float32."""
    if precision != "bfloat16" or _native.C is None:
        return False
    return INSTRUCTION_SETS[_native.C.isa()].bfloat16 != _WIDENED


def products_on_cpu(precision: str) -> str:
    """Describe how this CPU computes the matrix products of a precision."""
    if _native.C is None:
        if precision == "float32":
            return "torch"
        how = "multiplied in float64" if precision == "int8" else "then multiplied in float32: no faster than float32"
        return f"operands rounded, {how}"
    return getattr(INSTRUCTION_SETS[_native.C.isa()], precision, _WIDENED)


def speeds_elsewhere() -> list[str]:
    """Describe the speeds of the instruction set in use, as measured on a different CPU.

    Returns one line per precision; empty if unknown.
    """

    def compared(speed: float) -> str:
        return "as fast as float32" if speed == 1 else f"{speed:g} times as fast as float32"

    return [
        f"{name}: {compared(speed.many_rows)} in batches of 32, {compared(speed.one_row)} in batches of 1"
        for name, speed in _speeds().items()
    ]


def newer_instruction_sets() -> list[str]:
    """Describe what newer instruction sets of the same kind of CPU would change, one line each."""
    if _native.C is None:
        return []
    names = list(INSTRUCTION_SETS)
    current, lines = INSTRUCTION_SETS[_native.C.isa()], []
    for name in names[names.index(_native.C.isa()) + 1 :]:
        newer = INSTRUCTION_SETS[name]
        gains = [
            f"{precision}: {getattr(newer, precision)}"
            for precision in ("float32", "bfloat16", "int8")
            if getattr(newer, precision) != getattr(current, precision)
        ]
        if newer.of_arm == on_arm():
            lines.append(f"{name} ({newer.cpus} and newer): {'; '.join(gains)}")
    return lines
