"""Instructions that access memory: ld, st, cp.async, atom."""

from typing import Any, NamedTuple

import numpy as np

from tests.ptx.arithmetic import Run
from tests.ptx.lanes import PARAMETERS
from tests.ptx.program import Instruction, PtxError, Vector
from tests.ptx.values import UNSIGNED, Type, bits_of, numbers, type_called


def several(i: Instruction) -> int:
    """How many elements each lane accesses."""
    return next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)


def items(operand: Any) -> tuple:
    return operand.items if isinstance(operand, Vector) else (operand,)


def load(i: Instruction) -> Run:
    if "param" in i.modifiers:
        return load_parameter(i)
    if is_atomic(i):
        return load_atomically(i)
    t, vector, shared = type_called(i.modifiers[-1]), several(i), "shared" in i.modifiers
    if not shared and "global" not in i.modifiers:
        raise PtxError(f"only shared and global memory is known: {i.text}")

    def run(b: Any) -> None:
        lanes = b.lanes.chosen()
        by = b.lanes.actor[lanes]
        if shared:
            found = b.shared.load(b.lanes.address(i.operands[1], 32), t.bits, vector, b.lanes.block[lanes], by)
        else:
            addresses = b.lanes.address(i.operands[1], 64)
            found = b.memory.load(addresses, t.bits, vector, by)
            b.counts.read(addresses, t.bits // 8 * vector, b.lanes.warp[lanes])
        b.counts.shared(found.nbytes if shared else 0)
        for k, item in enumerate(items(i.operands[0])):
            b.lanes.write_active(item, numbers(np.ascontiguousarray(found[:, k]), t), t)

    return run


def is_atomic(i: Instruction) -> bool:
    """Whether blocks may wait for each other by it."""
    strong = {"acquire", "release", "relaxed", "volatile"}.intersection(i.modifiers)
    if i.opcode in ("atom", "red"):
        return "shared" not in i.modifiers
    return i.opcode in ("ld", "st") and "global" in i.modifiers and bool(strong)


def load_atomically(i: Instruction) -> Run:
    """ld.acquire, which is what becomes of an atomic that adds 0."""
    t = type_called(i.modifiers[-1])

    def run(b: Any) -> None:
        lanes = b.lanes.chosen()
        addresses, by = b.lanes.address(i.operands[1], 64), b.lanes.actor[lanes]
        found = [b.memory.atomic(*each, i.modifiers)[0] for each in zip(addresses, [t.bits] * len(by), by, strict=True)]
        b.counts.atomics += len(by)
        b.lanes.write_active(i.operands[0], numbers(np.array(found), t), t)

    return run


def load_parameter(i: Instruction) -> Run:
    t, vector = type_called(i.modifiers[-1]), several(i)
    size = t.bits // 8

    def run(b: Any) -> None:
        at = b.lanes.address(i.operands[1], 64).astype(np.int64) - PARAMETERS
        if (at < 0).any() or (at + size * vector > len(b.lanes.parameters)).any() or (at % (size * vector)).any():
            raise PtxError(f"the parameters have {len(b.lanes.parameters)} bytes, and one is read at {int(at[0])}")
        units = b.lanes.parameters[: len(b.lanes.parameters) // size * size].view(UNSIGNED[t.bits])
        for k, item in enumerate(items(i.operands[0])):
            b.lanes.write_active(item, numbers(units[at // size + k], t), t)

    return run


def store(i: Instruction) -> Run:
    if is_atomic(i):
        raise PtxError(f"no such store here: {i.text}")
    t, shared = Type("b", type_called(i.modifiers[-1]).width), "shared" in i.modifiers
    if not shared and "global" not in i.modifiers:
        raise PtxError(f"only shared and global memory is known: {i.text}")

    def run(b: Any) -> None:
        lanes = b.lanes.chosen()
        by = b.lanes.actor[lanes]
        values = np.stack([b.lanes.all_of(item, t.bits)[lanes] for item in items(i.operands[1])], 1)
        b.lanes.demand_defined()
        if shared:
            b.shared.store(b.lanes.address(i.operands[0], 32), values, b.lanes.block[lanes], by)
            b.counts.shared(values.nbytes)
        else:
            addresses = b.lanes.address(i.operands[0], 64)
            b.memory.store(addresses, values, by)
            b.counts.written(addresses, values[:1].nbytes, b.lanes.warp[lanes])

    return run


def copy(i: Instruction) -> Run:
    """cp.async: what is copied is there only when its thread has waited for the group that it belongs to."""
    if "commit_group" in i.modifiers:
        return commit
    if "wait_group" in i.modifiers or "wait_all" in i.modifiers:
        return lambda b: land(b, i.operands[0].bits if i.operands else -1)
    if "async" not in i.modifiers or "bulk" in i.modifiers:
        raise PtxError(f"no such copy here: {i.text}")
    size = i.operands[2].bits

    def run(b: Any) -> None:
        lanes = b.lanes.chosen()
        by, block = b.lanes.actor[lanes], b.lanes.block[lanes]
        to, source = b.lanes.address(i.operands[0], 32), b.lanes.address(i.operands[1], 64)
        given = b.lanes.all_of(i.operands[3], 32)[lanes] if len(i.operands) > 3 else np.full(len(lanes), size)
        if not np.isin(given, (0, size)).all():
            raise PtxError("cp.async copies a part of its bytes")
        b.lanes.demand_defined()
        values = np.zeros((len(lanes), size // 4), np.uint32)
        some = given > 0
        values[some] = b.memory.load(source[some], 32, size // 4, by[some])
        b.counts.read(source[some], size, b.lanes.warp[lanes[some]])
        b.counts.shared(values.nbytes)
        b.shared.claim(b.shared.places(b.shared.offsets(to, size, block), size), by, False)
        b.copies.append(Copy(lanes, b.committed[lanes], to, values, block, by))

    return run


class Copy(NamedTuple):
    """What lanes copy in one instruction: lanes, and in which of their groups; where to, what; blocks and warps."""

    lanes: np.ndarray
    group: np.ndarray
    to: np.ndarray
    values: np.ndarray
    block: np.ndarray
    by: np.ndarray

    def of(self, some: np.ndarray) -> "Copy":
        return Copy(*(each[some] for each in self))


def commit(b: Any) -> None:
    b.committed = b.committed + (1 if b.lanes.active is None else b.lanes.active)


def land(b: Any, most: int) -> None:
    """Copies of the active lanes land, but for their `most` latest groups (-1: what is in no group lands as well)."""
    left = []
    for copy in b.copies:
        now = copy.group < b.committed[copy.lanes] - most
        if b.lanes.active is not None:
            now &= b.lanes.active[copy.lanes]
        if now.any():
            done = copy.of(now)
            b.shared.store(done.to, done.values, done.block, done.by)
        if not now.all():
            left.append(copy.of(~now))
    b.copies = left


ATOMICS = {
    "add": lambda old, given: old + given, "exch": lambda old, given: given, "max": max, "min": min,
    "and": lambda old, given: old & given, "or": lambda old, given: old | given,
}  # fmt: skip


def atomic(i: Instruction) -> Run:
    """atom, red: lanes one after the other, blocks in random order."""
    t, results = type_called(i.modifiers[-1]), i.opcode == "atom"
    name = next(m for m in i.modifiers if m in (*ATOMICS, "cas"))
    at, given = i.operands[results : 2 + results]
    shared = "shared" in i.modifiers
    if not shared and "global" not in i.modifiers:
        raise PtxError(f"only shared and global memory is known: {i.text}")

    def run(b: Any) -> None:
        lanes = b.lanes.chosen()
        addresses = b.lanes.address(at, 32 if shared else 64)
        values = np.broadcast_to(b.lanes.read(given, t), b.lanes.count)
        more = np.broadcast_to(b.lanes.read(i.operands[3], t), b.lanes.count) if name == "cas" else values
        b.lanes.demand_defined()
        found = np.empty(len(lanes), values.dtype)
        if shared:
            units = b.shared.atomic(addresses, t.bits, b.lanes.block[lanes], b.lanes.actor[lanes])
        for k in b.random.permutation(len(lanes)):
            lane = lanes[k]
            if shared:
                unit = units[k]
            else:
                unit = b.memory.atomic(addresses[k], t.bits, int(b.lanes.actor[lane]), i.modifiers)
            old = numbers(unit.copy(), t)[0]
            if name == "cas":
                new = more[lane] if old == values[lane] else old
            else:
                new = ATOMICS[name](old, values[lane])
            unit[0] = bits_of(np.array([new], values.dtype), t)[0]
            found[k] = old
        if shared:
            b.counts.shared(found.nbytes)
        else:
            b.counts.atomics += len(lanes)
        if results:
            b.lanes.write_active(i.operands[0], found, t)

    return run


OPCODES = {"ld": load, "st": store, "cp": copy, "atom": atomic, "red": atomic}
