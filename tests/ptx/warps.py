"""Instructions of a whole warp: shuffles, reductions, ldmatrix and the tensor cores' mma."""

from typing import Any

import numpy as np

from tests.ptx.access import items
from tests.ptx.arithmetic import U32, Run
from tests.ptx.lanes import WARP
from tests.ptx.program import Instruction, PtxError, Vector
from tests.ptx.values import Type, numbers, rounded_to_tf32, type_called

LANE = np.arange(WARP)
GROUP, PLACE = LANE // 4, LANE % 4
F32 = Type("f", 32)


def shuffle(i: Instruction) -> Run:
    kind = i.modifiers[1]

    def run(b: Any) -> None:
        b.lanes.demand_whole_warps()
        values = b.lanes.all_of(i.operands[1], 32).reshape(-1, WARP)
        by, limits = (b.lanes.all_of(o, 32).reshape(-1, WARP).astype(np.int64) for o in i.operands[2:4])
        segment, clamp = limits >> 8 & 31, limits & 31
        least, most = LANE & segment, (LANE & segment) | (clamp & ~segment)
        source = {
            "bfly": LANE ^ by, "idx": least | (by & ~segment), "up": LANE - by, "down": LANE + by,
        }[kind]  # fmt: skip
        inside = source >= most if kind == "up" else source <= most
        source = np.where(inside, source, LANE)
        found = np.take_along_axis(values, source, 1).reshape(-1)
        if b.lanes.defined is not None:
            b.lanes.defined = np.take_along_axis(b.lanes.defined.reshape(-1, WARP), source, 1).reshape(-1)
        to = i.operands[0]
        b.lanes.write(to.items[0] if isinstance(to, Vector) else to, found, U32)
        if isinstance(to, Vector):
            b.lanes.write(to.items[1], inside.reshape(-1), type_called("pred"))

    return run


REDUCTIONS = {"max": np.max, "min": np.min, "add": np.sum, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce}


def reduce(i: Instruction) -> Run:
    t, name = type_called(i.modifiers[-1]), i.modifiers[1]

    def run(b: Any) -> None:
        b.lanes.demand_whole_warps()
        values = np.broadcast_to(b.lanes.read(i.operands[1], t), b.lanes.count).reshape(-1, WARP)
        b.lanes.demand_defined()
        found = REDUCTIONS[name](values, axis=1).astype(values.dtype)
        b.lanes.write(i.operands[0], np.repeat(found, WARP), t)

    return run


def vote(i: Instruction) -> Run:
    """vote.sync.ballot, any, all; activemask is not known."""

    def run(b: Any) -> None:
        b.lanes.demand_whole_warps()
        given = b.lanes.all_of(i.operands[1], 1).reshape(-1, WARP)
        b.lanes.demand_defined()
        if i.modifiers[1] == "ballot":
            found = (given.astype(np.uint64) << LANE.astype(np.uint64)).sum(1).astype(np.uint32)
            b.lanes.write(i.operands[0], np.repeat(found, WARP), U32)
        else:
            found = given.any(1) if i.modifiers[1] == "any" else given.all(1)
            b.lanes.write(i.operands[0], np.repeat(found, WARP), type_called("pred"))

    return run


def load_matrix(i: Instruction) -> Run:
    """8 rows of 8 elements of 16 bit per matrix; the lanes 8 k to 8 k + 7 give the addresses of matrix k's rows."""
    matrices, transposed = int(next(m for m in i.modifiers if m in ("x1", "x2", "x4"))[1]), "trans" in i.modifiers

    def run(b: Any) -> None:
        b.lanes.demand_whole_warps()
        chosen = b.lanes.chosen().reshape(-1, WARP)
        addresses = b.lanes.address(i.operands[1], 32).reshape(-1, WARP)
        for k, item in enumerate(items(i.operands[0])[:matrices]):
            lanes = chosen[:, 8 * k : 8 * k + 8].reshape(-1)
            rows = addresses[:, 8 * k : 8 * k + 8].reshape(-1)
            found = b.shared.load(rows, 16, 8, b.lanes.block[lanes], b.lanes.actor[lanes]).reshape(-1, 8, 8)
            b.counts.shared(found.nbytes)
            if transposed:
                found = found.transpose(0, 2, 1)
            low, high = (found[:, GROUP, 2 * PLACE + half].astype(np.uint32) for half in (0, 1))
            b.lanes.write_active(item, (low | high << np.uint32(16)).reshape(-1), U32)

    return run


def summed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a · b + c, added in float64 and rounded to float32 once; what GPUs do is in truncation.py."""
    return (a @ b + c).astype(np.float32)


def multiply(i: Instruction) -> Run:
    """mma.m16n8kK: D [16, 8] = A [16, K] · B [K, 8] + C, as `summed` adds."""
    shape, (left, right) = i.modifiers[2], (type_called(m) for m in i.modifiers[6:8])
    depth = int(shape.removeprefix("m16n8k"))
    if not (shape.startswith("m16n8k") and i.modifiers[5] == i.modifiers[8] == "f32" and left == right):
        raise PtxError(f"no such product here: {i.text}")
    half = depth // 2  # the columns of A that each half of its registers holds
    each = 32 // left.bits  # elements in a register

    def elements(b: Any, operand: Any) -> list[np.ndarray]:
        """Of each register, [warps, 32, each]."""
        found = []
        for item in items(operand):
            bits = np.ascontiguousarray(b.lanes.all_of(item, 32))
            if left.kind == "tf":
                values = rounded_to_tf32(bits.view(np.float32))[:, None]
            else:
                values = numbers(bits, Type(left.kind, 16, 2))
            found.append(values.reshape(-1, WARP, each).astype(np.float64))
        return found

    def run(b: Any) -> None:
        b.lanes.demand_whole_warps()
        warps = b.lanes.count // WARP
        a, c = np.empty((warps, 16, depth)), np.empty((warps, 16, 8))
        wide = np.empty((warps, depth, 8))
        for k, values in enumerate(elements(b, i.operands[1])):
            for e in range(each):
                a[:, GROUP + 8 * (k % 2), each * PLACE + e + half * (k // 2)] = values[..., e]
        for k, values in enumerate(elements(b, i.operands[2])):
            for e in range(each):
                wide[:, each * PLACE + e + 4 * each * k, GROUP] = values[..., e]
        for k, item in enumerate(items(i.operands[3])):
            c[:, GROUP + 8 * (k // 2), 2 * PLACE + k % 2] = b.lanes.read(item, F32).reshape(-1, WARP)
        b.lanes.demand_defined()
        product = summed(a, wide, c)
        for k, item in enumerate(items(i.operands[0])):
            b.lanes.write(item, product[:, GROUP + 8 * (k // 2), 2 * PLACE + k % 2].reshape(-1), F32)
        b.counts.product(16 * 8 * depth * (len(b.lanes.chosen()) // WARP))

    return run


OPCODES = {"shfl": shuffle, "redux": reduce, "vote": vote, "ldmatrix": load_matrix, "mma": multiply}
