"""Instructions that compute: each lane for itself, from registers to a register."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ptx.program import Instruction
from tests.ptx.values import SIGNED, UNSIGNED, Type, rounded_to_tf32, type_called

U32 = Type("u", 32)
Run = Callable[[Any], None]
"""What an instruction does to a `blocks.Blocks`; made once per instruction of a program."""

LIMITS = {"min": (np.fmin, np.minimum), "max": (np.fmax, np.maximum)}
"""of floats, where a NaN loses against a number, and of everything else"""
UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
ROUNDINGS = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def quotient(x: np.ndarray, y: np.ndarray, t: Type) -> np.ndarray:
    """Towards zero for integers; of a division by zero any number will do."""
    if t.is_float:
        return x / y
    y = np.where(y == 0, y.dtype.type(1), y)
    floor = x // y
    return floor + ((x % y != 0) & ((x < 0) != (y < 0))) if t.kind == "s" else floor


def remainder(x: np.ndarray, y: np.ndarray, t: Type) -> np.ndarray:
    return np.fmod(x, np.where(y == 0, y.dtype.type(1), y))


def high_half(x: np.ndarray, y: np.ndarray, t: Type) -> np.ndarray:
    if t.bits == 64:
        return np.array([int(a) * int(b) >> 64 for a, b in np.broadcast(x, y)], object).astype(x.dtype)
    wide = (SIGNED if t.kind == "s" else UNSIGNED)[2 * t.bits]
    return (x.astype(wide) * y.astype(wide) >> wide(t.bits)).astype(x.dtype)


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray, t: Type) -> np.ndarray:
    """x * y + z, rounded once: of 16 and 32 bits the product is exact in the wider type."""
    if t.bits == 64:
        return fused64(x, y, z)
    return (x.astype(np.float64) * y + z).astype(x.dtype)


def exact_sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum, and what it lacks."""
    s = x + y
    back = s - x
    return s, (x - (s - back)) + (y - back)


def exact_product(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product, and what it lacks, by halves of 26 bits."""
    halves = []
    for each in (x, y):
        big = each * 134217729.0  # 2^27 + 1
        high = big - (big - each)
        halves.append((high, each - high))
    (a, b), (c, d) = halves
    p = x * y
    return p, b * d - (((p - a * c) - b * c) - a * d)


def fused64(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rounded once (Boldo and Melquiond, 2008): the parts too small to matter are added to odd before the last sum.

    Where something is not finite or nearly over- or underflows, it is rounded twice.
    """
    x, y, z = np.broadcast_arrays(x, y, z)
    product, rest = exact_product(x, y)
    middle, low = exact_sum(z, rest)
    high, middle = exact_sum(product, middle)
    odd, lost = exact_sum(middle, low)
    even = (odd.view(np.uint64) & np.uint64(1)) == 0
    odd = np.where((lost != 0) & even, np.nextafter(odd, np.copysign(np.inf, lost)), odd)
    usual = np.isfinite(lost) & np.isfinite(high) & (np.abs(product) > 2.0**-900)
    return np.where(usual, high + odd, x * y + z)


def product_or_sum(i: Instruction) -> Run:
    """add, sub, mul, mad, fma, div, rem, min, max"""
    t, name = type_called(i.modifiers[-1]), i.opcode
    result = Type(t.kind, 2 * t.bits) if "wide" in i.modifiers else t
    high = "hi" in i.modifiers

    def compute(x: np.ndarray, y: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        if name in ("mad", "fma"):
            return fused(x, y, z, t) if t.is_float else (high_half(x, y, t) if high else x * y) + z
        if name == "mul":
            return high_half(x, y, t) if high else x * y
        if name in LIMITS:
            nan = "NaN" in i.modifiers
            return LIMITS[name][0 if t.is_float and not nan else 1](x, y)
        if name in ("div", "rem"):
            return (quotient if name == "div" else remainder)(x, y, t)
        return x + y if name == "add" else x - y

    def run(b: Any) -> None:
        x, y = (b.lanes.read(operand, t) for operand in i.operands[1:3])
        if result is not t:
            wide = (SIGNED if t.kind == "s" else UNSIGNED)[result.bits]
            x, y = x.astype(wide), y.astype(wide)
        z = b.lanes.read(i.operands[3], result) if len(i.operands) > 3 else None
        b.lanes.write(i.operands[0], compute(x, y, z), result)

    return run


def function(i: Instruction) -> Run:
    """neg, abs, and the functions of which `approx` gives a few bits less: here they are off by a little on purpose."""
    t, approx = type_called(i.modifiers[-1]), "approx" in i.modifiers

    def run(b: Any) -> None:
        x = b.lanes.read(i.operands[1], t)
        if i.opcode in ("neg", "abs"):
            value = UNARY[i.opcode](x)
        else:
            value = UNARY[i.opcode](np.asarray(x, np.float64))
            if i.opcode == "tanh" and approx:
                value = np.clip(value * (1 + np.sign(deviation(x)) * 2.0**-11), -1, 1)
            elif approx and t.bits == 32:
                value = value * (1 + deviation(x))
            if "ftz" in i.modifiers and approx and t.bits == 64:  # the upper half of the result alone
                value = (np.ascontiguousarray(value).view(np.uint64) & np.uint64(0xFFFFFFFF << 32)).view(np.float64)
        b.lanes.write(i.operands[0], value, t)

    return run


def deviation(x: np.ndarray) -> np.ndarray:
    """Of at most 2^-22.5, and the same for equal x; none at 0, where the PTX ISA has each function's value."""
    scrambled = np.ascontiguousarray(x, np.float32).view(np.uint32) * np.uint32(2654435761) >> np.uint32(8)
    return np.where(x == 0, 0, (scrambled / 2.0**23 - 1) * 2.0**-22.5)


def compare(i: Instruction) -> Run:
    """setp: of packed types for each half, into p|q."""
    t, name = type_called(i.modifiers[-1]), i.modifiers[0]
    join = LOGIC.get(i.modifiers[1]) if len(i.operands) > 3 else None

    def run(b: Any) -> None:
        x, y = (b.lanes.read(operand, t) for operand in i.operands[1:3])
        unordered = np.isnan(x) | np.isnan(y) if t.is_float else False
        if name in ("num", "nan"):
            found = unordered if name == "nan" else ~unordered
        elif name in COMPARISONS:
            found = COMPARISONS[name](x, y) & ~np.asarray(unordered)
        else:  # ltu and its like: true of a NaN
            found = COMPARISONS[name[:-1]](x, y) | unordered
        if t.packed > 1:
            for half, operand in enumerate(i.operands[0].items):
                b.lanes.write(operand, found[..., half], type_called("pred"))
            return
        if join is not None:
            found = join(found, b.lanes.bits(i.operands[3], 1))
        b.lanes.write(i.operands[0], found, type_called("pred"))

    return run


def logic(i: Instruction) -> Run:
    """and, or, xor, not, cnot"""
    t = type_called(i.modifiers[-1])

    def run(b: Any) -> None:
        x = b.lanes.bits(i.operands[1], t.width)
        if i.opcode == "not":
            value = ~np.asarray(x)
        else:
            value = LOGIC[i.opcode](x, b.lanes.bits(i.operands[2], t.width))
        b.lanes.write(i.operands[0], value, t if t.kind == "pred" else Type("b", t.width))

    return run


def shift(i: Instruction) -> Run:
    """shl, shr: by more than the width gives 0, or the sign."""
    t = type_called(i.modifiers[-1])

    def run(b: Any) -> None:
        x, by = np.asarray(b.lanes.read(i.operands[1], t)), np.asarray(b.lanes.bits(i.operands[2], 32))
        some = np.minimum(by, np.uint32(t.bits - 1)).astype(x.dtype)
        value = x << some if i.opcode == "shl" else x >> some
        if not (i.opcode == "shr" and t.kind == "s"):
            value = np.where(by >= t.bits, x.dtype.type(0), value)
        b.lanes.write(i.operands[0], value, t)

    return run


def select(i: Instruction) -> Run:
    t = Type("b", type_called(i.modifiers[-1]).width)

    def run(b: Any) -> None:
        values, known = [], []
        which = b.lanes.bits(i.operands[3], 1)
        of_choice = b.lanes.defined
        for operand in i.operands[1:3]:
            b.lanes.defined = None
            values.append(b.lanes.bits(operand, t.bits))
            known.append(b.lanes.defined)
        b.lanes.defined = of_choice
        if any(each is not None for each in known):  # what is not chosen need not be defined
            chosen = np.where(which, *(True if each is None else each for each in known))
            b.lanes.defined = chosen if of_choice is None else of_choice & chosen
        b.lanes.write(i.operands[0], np.where(which, *values), t)

    return run


def count_bits(i: Instruction) -> Run:
    width = type_called(i.modifiers[-1]).width
    return lambda b: b.lanes.write(i.operands[0], np.bitwise_count(b.lanes.bits(i.operands[1], width)), U32)


def extract(i: Instruction) -> Run:
    """bfe: some bits from a place on, with their sign if the type has one."""
    t = type_called(i.modifiers[-1])

    def run(b: Any) -> None:
        x = np.asarray(b.lanes.bits(i.operands[1], t.bits)).astype(np.uint64)
        place, length = (np.asarray(b.lanes.bits(o, 32)).astype(np.uint64) & np.uint64(255) for o in i.operands[2:4])
        mask = (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
        value = x >> np.minimum(place, np.uint64(63)) & mask
        if t.kind == "s":
            value = np.where(value >> (length - np.uint64(1)) & np.uint64(1) == 1, value | ~mask, value)
        b.lanes.write(i.operands[0], value.astype(UNSIGNED[t.bits]), Type("b", t.bits))

    return run


def permute(i: Instruction) -> Run:
    """prmt: four bytes of eight, each by a selector of four bits, whose highest takes its sign alone."""

    def run(b: Any) -> None:
        low, high, chosen = (np.asarray(b.lanes.bits(o, 32)).astype(np.uint64) for o in i.operands[1:4])
        both, value = low | high << np.uint64(32), np.uint64(0)
        for k in range(4):
            selector = chosen >> np.uint64(4 * k) & np.uint64(15)
            byte = both >> (selector & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            value = value | np.where(selector & np.uint64(8), sign, byte) << np.uint64(8 * k)
        b.lanes.write(i.operands[0], value.astype(np.uint32), U32)

    return run


def convert(i: Instruction) -> Run:
    to, of = type_called(i.modifiers[-2]), type_called(i.modifiers[-1])
    rounding = next((ROUNDINGS[m] for m in i.modifiers if m in ROUNDINGS), None)
    if to.packed > 1 and of.packed == 1:  # two numbers, the first into the upper half

        def pack(b: Any) -> None:
            high, low = (np.broadcast_to(b.lanes.read(o, of), b.lanes.count) for o in i.operands[1:3])
            b.lanes.write(i.operands[0], np.stack([low, high], -1), to)

        return pack
    if to.kind == "tf":
        return lambda b: b.lanes.write(i.operands[0], rounded_to_tf32(b.lanes.read(i.operands[1], of)), of)

    def run(b: Any) -> None:
        x = b.lanes.read(i.operands[1], of)
        if of.is_float and not to.is_float:
            least, most = (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if to.kind == "s" else (0, (1 << to.bits) - 1)
            x = np.where(np.isnan(x), 0, rounding(x.astype(np.longdouble)))
            x = np.clip(x, least, most).astype((SIGNED if to.kind == "s" else UNSIGNED)[to.bits])
        elif rounding is not None:
            x = rounding(x)
        elif to.is_float and not of.is_float:
            x = np.asarray(x).astype(np.float32 if to.bits < 64 and of.bits < 64 else np.float64)
        if "sat" in i.modifiers and to.is_float:
            x = np.clip(np.where(np.isnan(x), 0, x), 0, 1)
        if to.is_float:
            b.lanes.write(i.operands[0], x, to)
        else:  # extended by the sign of what it was, cut to what it becomes
            b.lanes.write(i.operands[0], np.asarray(x).astype((SIGNED if to.kind == "s" else UNSIGNED)[to.bits]), to)

    return run


def move(i: Instruction) -> Run:
    t = type_called(i.modifiers[-1])
    t = t if t.kind == "pred" else Type("b", t.width)
    return lambda b: b.lanes.write(i.operands[0], b.lanes.bits(i.operands[1], t.width), t)


OPCODES = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max"), product_or_sum),
    **dict.fromkeys(UNARY, function),
    **dict.fromkeys(("and", "or", "xor", "not"), logic),
    **dict.fromkeys(("shl", "shr"), shift),
    "setp": compare, "selp": select, "popc": count_bits, "bfe": extract, "prmt": permute, "cvt": convert, "mov": move,
    "cvta": move,
}  # fmt: skip
