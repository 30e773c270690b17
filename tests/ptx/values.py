"""Bits of registers as numbers and back: the types of PTX in numpy's. bfloat16 is computed in float32, then rounded."""

import functools
from typing import NamedTuple

import numpy as np

UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOAT = {16: np.float16, 32: np.float32, 64: np.float64}


class Type(NamedTuple):
    kind: str
    """b, u, s, f, bf, tf or pred"""
    bits: int
    packed: int = 1
    """how many of them a register holds"""

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def width(self) -> int:
        """bits of a register that holds it"""
        return self.bits * self.packed


@functools.cache
def type_called(name: str) -> Type:
    """`f32`, `bf16x2`, `pred`, ..."""
    if name == "pred":
        return Type("pred", 1)
    kind = name.rstrip("x0123456789")
    bits, _, packed = name.removeprefix(kind).partition("x")
    return Type(kind, int(bits), int(packed or 1))


def numbers(bits: np.ndarray, t: Type) -> np.ndarray:
    """bits [...] (unsigned) as numbers [...], or [..., 2] of a packed type."""
    if t.packed > 1:
        bits = np.ascontiguousarray(bits)[..., None].view(UNSIGNED[t.bits])
    if t.kind == "bf":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if t.kind == "f":
        return bits.view(FLOAT[t.bits])
    if t.kind == "s":
        return bits.view(SIGNED[t.bits])
    return bits


def bits_of(values: np.ndarray, t: Type) -> np.ndarray:
    """numbers as bits: floats rounded to nearest even, integers wrapped.

    A NaN of 16 or 32 bits is the canonical one, as the PTX ISA has it of every instruction that computes: numpy gives
    it the sign of an operand, so that two warps that compute one sum would seem to differ.
    """
    if t.kind == "pred":
        return np.asarray(values, bool)
    if t.kind == "bf":
        bits = rounded_to_bfloat16(values)
    elif t.kind == "f":
        floats = np.ascontiguousarray(values, FLOAT[t.bits])
        bits = floats.view(UNSIGNED[t.bits])
        if t.bits < 64 and (nan := np.isnan(floats)).any():
            bits = np.where(nan, UNSIGNED[t.bits]((1 << t.bits - 1) - 1), bits)
    else:
        bits = np.asarray(values).astype(UNSIGNED[t.bits], copy=False)
    if t.packed > 1:
        bits = np.ascontiguousarray(bits).view(UNSIGNED[t.width])[..., 0]
    return bits


def rounded_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Bits, to nearest even. A NaN becomes the canonical one, as cvt gives."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + np.uint64(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint64(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


def rounded_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 with 10 bits of mantissa, to nearest, ties away from zero."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)
