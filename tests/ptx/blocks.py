"""Runs a program for some blocks of a launch at once, an instruction at a time for all lanes that are there."""

import functools
from typing import NamedTuple

import numpy as np

from tests.ptx import access, arithmetic, warps
from tests.ptx.access import Copy
from tests.ptx.arithmetic import Run
from tests.ptx.counts import Counts
from tests.ptx.global_memory import GlobalMemory
from tests.ptx.lanes import Lanes
from tests.ptx.program import Instruction, Program, PtxError, parse
from tests.ptx.shared_memory import SharedMemory, granule

OPCODES = {**arithmetic.OPCODES, **access.OPCODES, **warps.OPCODES}
IGNORED = ("fence", "membar", "prefetch", "nanosleep", "griddepcontrol")
SYNCHRONISED = ("bar", "barrier")


def made(i: Instruction) -> Run | None:
    """What the instruction does; None for those that the loop below does itself."""
    if i.opcode in ("bra", "ret", "exit", *SYNCHRONISED, *IGNORED):
        return None
    if i.opcode not in OPCODES:
        raise PtxError(f"no such instruction here: {i.text}")
    return OPCODES[i.opcode](i)


class Kernel(NamedTuple):
    """A program that is ready to run."""

    program: Program
    runs: list[Run | None]
    granule: int
    """bytes of its smallest access to shared memory"""

    @property
    def interacts(self) -> bool:
        """Whether its blocks order each other's accesses: by atomics that release or acquire."""
        orders = {"acquire", "release", "acq_rel"}
        return any(orders.intersection(i.modifiers) for i in self.program.code if access.is_atomic(i))


@functools.lru_cache(maxsize=4096)
def kernel(text: str, entry: str | None = None) -> Kernel:
    program = parse(text, entry)
    return Kernel(program, [made(i) for i in program.code], granule(program.code))


class Blocks:
    def __init__(
        self, kernel: Kernel, lanes: Lanes, memory: GlobalMemory, shared: SharedMemory, counts: Counts,
        random: np.random.Generator,
    ):  # fmt: skip
        self.lanes, self.memory, self.shared, self.counts, self.random = lanes, memory, shared, counts, random
        self.program, self.runs = kernel.program, kernel.runs
        self.copies: list[Copy] = []
        self.committed = np.zeros(lanes.count, np.int64)
        self.at = np.zeros(lanes.count, np.int64)
        """where each lane is in the program"""
        self.alive, self.waiting = np.ones(lanes.count, bool), np.zeros(lanes.count, bool)

    def run(self) -> None:
        """To the end."""
        together = True  # all lanes are at `at`: the usual case needs no search for the next
        at = 0
        with np.errstate(all="ignore"):
            while True:
                if not together:
                    if not self.alive.any():
                        return
                    self.release()
                    ready = self.alive & ~self.waiting
                    at = int(self.at[ready].min())
                    group = ready & (self.at == at)
                    together = bool(group.all())
                if at >= len(self.program.code):
                    raise PtxError("the program has no end")
                i = self.program.code[at]
                try:
                    active = self.guarded(i, None if together else group)
                    following = self.step(i, at, None if together else group, active)
                except PtxError as error:
                    raise PtxError(f"{self.program.name}, line {i.source or '?'}: {i.text}\n{error}") from None
                if together and isinstance(following, int):
                    at = following
                    continue
                if together:
                    self.at[:] = at + 1
                    together = False
                    group = np.ones(self.lanes.count, bool)
                else:
                    self.at[group] = at + 1
                if isinstance(following, int):
                    self.at[group] = following
                elif following is not None:
                    to, some = following
                    if to < 0:
                        self.alive[some] = False
                    else:
                        self.at[some] = to

    def guarded(self, i: Instruction, group: np.ndarray | None) -> np.ndarray | None:
        """The lanes of the group whose guard lets them execute; None for all."""
        if i.guard is None:
            return group
        self.lanes.begin(group)
        allowed = np.broadcast_to(self.lanes.bits(i.guard, 1), self.lanes.count)
        self.lanes.demand_defined()
        allowed = ~allowed if i.negated else allowed
        allowed = allowed if group is None else allowed & group
        return None if allowed.all() else allowed

    def step(self, i: Instruction, at: int, group: np.ndarray | None, active: np.ndarray | None):
        """Where the group goes: a place for all, (place, lanes) for some (-1: they end), None for the next."""
        if active is not None and not active.any():
            return at + 1
        if i.opcode in ("ret", "exit"):
            return -1, (slice(None) if active is None else active)
        if i.opcode == "bra":
            to = self.program.labels[i.operands[0].name]
            return to if active is None else (to, active)
        self.lanes.begin(active)
        if i.opcode in SYNCHRONISED:
            return self.wait(i, at, active)
        if (run := self.runs[at]) is not None:
            run(self)
        return at + 1

    def wait(self, i: Instruction, at: int, active: np.ndarray | None):
        """bar.sync: each block's lanes wait until all that live are there. Lanes of a warp are never apart anyway."""
        if "warp" in i.modifiers:
            self.lanes.demand_whole_warps()
            return at + 1
        if "sync" not in i.modifiers:
            raise PtxError("only bar.sync is known")
        if active is None:
            self.end_interval(self.lanes.blocks, at)
            return at + 1
        self.waiting |= active
        return at + 1

    def release(self) -> None:
        """Blocks all of whose live lanes wait resume; they must wait at one barrier."""
        if not self.waiting.any():
            return
        count, block = len(self.lanes.blocks), self.lanes.block
        ready = np.bincount(block[self.alive & ~self.waiting], minlength=count) == 0
        ready &= np.bincount(block[self.waiting], minlength=count) > 0
        if not ready.any():
            return
        resumed = self.waiting & ready[block]
        for number in np.flatnonzero(ready):
            if np.ptp(self.at[resumed & (block == number)]):
                raise PtxError(f"{self.program.name}: lanes of block {self.lanes.blocks[number]} wait at two barriers")
            self.end_interval(self.lanes.blocks[number : number + 1], int(self.at[resumed & (block == number)][0]) - 1)
        self.waiting[resumed] = False

    def end_interval(self, blocks: np.ndarray, at: int) -> None:
        self.counts.passed.update((at, int(block)) for block in blocks)
        for order in (self.shared.shadow.order, self.memory.order):
            order.barrier(blocks)
