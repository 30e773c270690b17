"""The threads of some blocks of a launch side by side: their registers, and what an instruction reads and writes."""

import numpy as np

from tests.ptx.program import Address, Immediate, Operand, Program, PtxError, Register, Special, Symbol, Vector
from tests.ptx.races import number_of
from tests.ptx.values import SIGNED, UNSIGNED, Type, bits_of, numbers

WARP = 32
PARAMETERS = 1 << 48  # where ld.param finds them by address


class Lanes:
    """A lane per thread, block after block. `active`: the lanes that execute the current instruction, None for all.

    What a register of a lane holds before anything was written to it is not defined, nor is what is computed from it.
    That is no error, as compilers do it where nobody looks: it is where it decides an address, a branch, what is
    stored, or a product of the tensor cores (`demand_defined`).
    """

    def __init__(
        self, program: Program, blocks: np.ndarray, grid: tuple[int, int, int], threads: int, actors: int,
        parameters: bytes,
    ):  # fmt: skip
        """actors: of a block, `Launch.actors`"""
        self.program, self.parameters, self.threads = program, np.frombuffer(parameters, np.uint8), threads
        self.blocks, self.count = blocks, len(blocks) * threads
        self.block = np.repeat(np.arange(len(blocks)), threads)
        thread, number = np.tile(np.arange(threads), len(blocks)), np.repeat(blocks, threads)
        self.warp = number_of(number, thread // WARP, -(-threads // WARP))
        self.actor = number_of(number, thread * actors // threads, actors)
        """who accesses memory, for the search for races"""
        zero = np.zeros(self.count, np.int64)
        index = (number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1])
        self.special = {"laneid": thread % WARP, "warpid": thread // WARP}
        for axis, size, at, blocks_there in zip("xyz", (threads, 1, 1), index, grid, strict=True):
            self.special[f"tid.{axis}"] = thread if axis == "x" else zero
            self.special[f"ntid.{axis}"] = zero + size
            self.special[f"ctaid.{axis}"] = at
            self.special[f"nctaid.{axis}"] = zero + blocks_there
        self.registers: dict[str, np.ndarray] = {}
        self.partly: dict[str, np.ndarray] = {}
        """of registers that are not defined in every lane, the lanes in which they are"""
        self.defined: np.ndarray | None = None
        """the lanes in which all is defined that the current instruction has read; None for all"""
        self.active: np.ndarray | None = None

    def symbol(self, name: str) -> int:
        for parameter, offset, _ in self.program.parameters:
            if parameter == name:
                return PARAMETERS + offset
        if name in self.program.variables:
            return self.program.variables[name]
        raise PtxError(f"{name} is not known")

    def begin(self, active: np.ndarray | None) -> None:
        """The next instruction, and the lanes that execute it."""
        self.active, self.defined = active, None

    def bits(self, operand: Operand, width: int) -> np.ndarray:
        """The raw bits [lanes], or one number where it is the same for all."""
        if isinstance(operand, Register):
            if operand.name not in self.registers:
                bits = self.program.widths[operand.name]
                self.registers[operand.name] = np.zeros(self.count, UNSIGNED[bits])
                self.partly[operand.name] = np.zeros(self.count, bool)
            found, known = self.registers[operand.name], self.partly.get(operand.name)
            if known is not None:
                self.defined = known if self.defined is None else self.defined & known
            return found if found.dtype == UNSIGNED[width] else found.astype(UNSIGNED[width])
        if isinstance(operand, Immediate):
            return bool(operand.bits) if width == 1 else UNSIGNED[width](operand.bits & ((1 << width) - 1))
        if isinstance(operand, Special):
            return self.special[operand.name].astype(UNSIGNED[width])
        if isinstance(operand, Symbol):
            return UNSIGNED[width](self.symbol(operand.name))
        if isinstance(operand, Vector):
            part = width // len(operand.items)
            found = UNSIGNED[width](0)
            for i, item in enumerate(operand.items):
                found = found | self.bits(item, part).astype(UNSIGNED[width]) << UNSIGNED[width](i * part)
            return found
        raise PtxError(f"{operand} is no value")

    def demand_defined(self) -> None:
        """Raises where an active lane has read what is not defined."""
        if self.defined is None:
            return
        missing = ~self.defined if self.active is None else self.active & ~self.defined
        if missing.any():
            lane = int(missing.argmax())
            raise PtxError(
                f"{int(missing.sum())} lanes read a register that is not defined there, first thread "
                f"{lane % self.threads} of block {self.blocks[self.block[lane]]}"
            )

    def read(self, operand: Operand, t: Type) -> np.ndarray:
        """The numbers [lanes], or [lanes, 2] of a packed type."""
        return numbers(self.bits(operand, t.width), t)

    def all_of(self, operand: Operand, width: int) -> np.ndarray:
        """`bits`, as an array of all lanes."""
        return self.whole(self.bits(operand, width))

    def whole(self, bits: np.ndarray) -> np.ndarray:
        """Of every lane, what may be one number for all. (np.broadcast_to took a fifth of the time.)"""
        return bits if np.ndim(bits) else np.full(self.count, bits)

    def address(self, operand: Address, width: int) -> np.ndarray:
        """[active lanes]"""
        known, self.defined = self.defined, None
        found = self.all_of(operand.base, width) + UNSIGNED[width](operand.offset & ((1 << width) - 1))
        self.demand_defined()
        self.defined = known
        return found if self.active is None else found[self.active]

    def chosen(self) -> np.ndarray:
        """The numbers of the active lanes."""
        return np.arange(self.count) if self.active is None else np.flatnonzero(self.active)

    def demand_whole_warps(self) -> None:
        """Raises where only a part of a warp executes what all its lanes must."""
        if self.active is not None:
            of_warp = self.active.reshape(-1, WARP)
            if (of_warp.any(1) != of_warp.all(1)).any():
                raise PtxError("only a part of a warp executes it")

    def write(self, operand: Operand, values: np.ndarray, t: Type) -> None:
        """To the active lanes, numbers of all lanes (or one for all); a wider register is filled by extension."""
        if isinstance(operand, Vector):
            bits, part = bits_of(values, t), t.width // len(operand.items)
            for i, item in enumerate(operand.items):
                piece = (bits >> UNSIGNED[t.width](i * part)).astype(UNSIGNED[part])
                self.write(item, piece, Type("b", part))
            return
        if operand.name == "_":
            return
        bits, width = bits_of(values, t), self.program.widths[operand.name]
        if bits.dtype != UNSIGNED[width]:
            if t.kind == "s":
                bits = bits.view(SIGNED[t.width]).astype(SIGNED[width])
            bits = bits.astype(UNSIGNED[width])
        self.place(operand.name, bits, width)

    def place(self, name: str, bits: np.ndarray, width: int) -> None:
        """Always a new array: the old one may be the value of another register too."""
        known = self.defined
        if self.active is None:
            self.registers[name] = self.whole(bits)
        else:
            before = self.registers.get(name)
            was = np.zeros(self.count, bool) if before is None else self.partly.get(name)
            if was is not None or known is not None:
                known = np.where(self.active, True if known is None else known, True if was is None else was)
            self.registers[name] = np.where(self.active, bits, UNSIGNED[width](0) if before is None else before)
        if known is None or known.all():
            self.partly.pop(name, None)
        else:
            self.partly[name] = known

    def write_active(self, operand: Operand, values: np.ndarray, t: Type) -> None:
        """As `write`, with numbers of the active lanes alone."""
        if self.active is not None:
            whole = np.zeros(self.count, values.dtype)
            whole[self.active] = values
            values = whole
        self.write(operand, values, t)
