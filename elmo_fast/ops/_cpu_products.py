"""How this CPU multiplies matrices, for each instruction set and precision."""

import platform
from typing import NamedTuple

from elmo_fast.ops import _native

_WIDENED = "16-bit weights, widened to float32 in registers: half the memory traffic of float32, the same arithmetic"
_FLOAT32 = {
    "generic": "vectors of 16 bytes, which every CPU has",
    "neon_bf16": "vectors of 16 bytes, which every CPU has",
    "avx2": "AVX2 and FMA",
    "avx2_vnni": "AVX2 and FMA",
    "avx512": "AVX-512",
    "avx512_vnni": "AVX-512",
    "avx512_bf16": "AVX-512",
    "amx": "AVX-512",
}
INSTRUCTION_SETS = tuple(_FLOAT32)  # as csrc/common/isa.cpp orders them, slowest first
_ARM = ("neon_bf16",)
_PAIRS = "half the memory traffic of float32, twice the products per instruction"
_BFLOAT16 = {
    "neon_bf16": f"pairs of bfloat16 (BF16): {_PAIRS}",
    "avx512_bf16": f"pairs of bfloat16 (AVX512_BF16): {_PAIRS}",
    "amx": "tiles of bfloat16 (AMX): half the memory traffic of float32, many times the products per instruction",
}
_QUARTER = "a quarter of the memory traffic of float32"
_BYTES = f"bytes widened to 16 bits: {_QUARTER}, up to twice the products per instruction"
_VNNI = f"bytes (VNNI): {_QUARTER}, four times the products per instruction"
_INT8 = {
    "generic": _BYTES,
    "neon_bf16": f"bytes (I8MM): {_QUARTER}, four times the products per instruction",
    "avx2": _BYTES,
    "avx2_vnni": _VNNI,
    "avx512": _BYTES,
    "avx512_vnni": _VNNI,
    "avx512_bf16": _VNNI,
    "amx": f"tiles of bytes (AMX): {_QUARTER}, many times the products per instruction",
}
_CPUS = {  # the first that had it
    "neon_bf16": "Arm Neoverse V1 and N2, Apple M2",
    "avx2": "Intel Haswell, AMD Zen",
    "avx2_vnni": "Intel Alder Lake, AMD Zen 5",
    "avx512": "Intel Skylake-SP, AMD Zen 4",
    "avx512_vnni": "Intel Cascade Lake, AMD Zen 4",
    "avx512_bf16": "Intel Cooper Lake, AMD Zen 4",
    "amx": "Intel Sapphire Rapids",
}


class Speed(NamedTuple):
    """How many times as fast as float32 the LSTMs of the original size run."""

    many_rows: float
    """batches of 32"""
    one_row: float
    """one sentence at a time"""


MEASURED_ON = "an AMD EPYC (Zen 5)"
# Measured with benchmarks/lstm_speeds.py on MEASURED_ON, one thread, held to each instruction set in turn.
# What is absent was not measured; generic is that of x86-64.
_SPEEDS: dict[str, dict[str, Speed]] = {
    "generic": {"bfloat16": Speed(0.71, 0.9), "float16": Speed(0.37, 0.33), "int8": Speed(1.5, 1.7)},
    "avx2": {"bfloat16": Speed(1, 1.7), "float16": Speed(1, 1.7), "int8": Speed(1.4, 3.1)},
    "avx2_vnni": {"bfloat16": Speed(1, 1.7), "float16": Speed(1, 1.7), "int8": Speed(3.3, 4.5)},
    "avx512": {"bfloat16": Speed(1, 1.8), "float16": Speed(1, 1.9), "int8": Speed(1.5, 3.9)},
    "avx512_vnni": {"bfloat16": Speed(1, 1.9), "float16": Speed(1, 1.8), "int8": Speed(2.9, 4.4)},
    "avx512_bf16": {"bfloat16": Speed(1.8, 2), "float16": Speed(1, 1.9), "int8": Speed(2.9, 4.5)},
}
_AS_FAST = 0.95  # what differs less lies within the measurement's spread


def on_arm() -> bool:
    """Whether this CPU is an Arm one."""
    return platform.machine() in ("aarch64", "arm64")


def speed_on_cpu(precision: str) -> Speed | None:
    """The measured speed with the instruction set in use; None if none was measured."""
    return None if _native.C is None or on_arm() else _SPEEDS.get(_native.C.isa(), {}).get(precision)


def why_slower_on_cpu(precision: str) -> str | None:
    """One sentence if many rows were measured to be slower than in float32, else None."""
    speed = None if precision == "float32" else speed_on_cpu(precision)
    if speed is None or speed.many_rows >= _AS_FAST:
        return None
    return (
        f"precision={precision!r} is slower than float32 with the instruction set in use "
        f'({products_on_cpu(precision)}); take precision="float32"'
    )


def is_faster_on_cpu(precision: str) -> bool:
    """Whether this CPU multiplies many rows of a 16-bit precision faster than float32."""
    return precision == "bfloat16" and _native.C is not None and _native.C.isa() in _BFLOAT16


def products_on_cpu(precision: str) -> str:
    """How this CPU computes the matrix products of a precision, in words."""
    if _native.C is None:
        if precision == "float32":
            return "torch"
        how = "multiplied in float64" if precision == "int8" else "then multiplied in float32: no faster than float32"
        return f"operands rounded, {how}"
    return _kernel(_native.C.isa(), precision)


def speeds_elsewhere() -> list[str]:
    """Speeds of the instruction set in use, as measured on another CPU: one line per precision; empty if unknown."""
    speeds = {precision: speed_on_cpu(precision) for precision in ("bfloat16", "float16", "int8")}
    return [
        f"{name}: {_compared(speed.many_rows)} in batches of 32, {_compared(speed.one_row)} in batches of 1"
        for name, speed in speeds.items()
        if speed is not None
    ]


def _compared(speed: float) -> str:
    return "as fast as float32" if speed == 1 else f"{speed:g} times as fast as float32"


def _kernel(isa: str, precision: str) -> str:
    """How an instruction set computes the products of a precision, in words."""
    return {"float32": _FLOAT32, "bfloat16": _BFLOAT16, "int8": _INT8}.get(precision, {}).get(isa, _WIDENED)


def newer_instruction_sets() -> list[str]:
    """What each instruction set newer than the one in use, of the same kind of CPU, would change; one line each."""
    if _native.C is None:
        return []
    current = _native.C.isa()
    lines = []
    for name in INSTRUCTION_SETS[INSTRUCTION_SETS.index(current) + 1 :]:
        gains = [
            f"{precision}: {_kernel(name, precision)}"
            for precision in ("float32", "bfloat16", "int8")
            if _kernel(name, precision) != _kernel(current, precision)
        ]
        if (name in _ARM) == on_arm():
            lines.append(f"{name} ({_CPUS[name]} and newer): {'; '.join(gains)}")
    return lines
