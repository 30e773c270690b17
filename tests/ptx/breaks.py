"""Takes out of a compiled kernel one barrier, wait, mask or ordering after the other, and sees whether that is found.

Found: the emulator says what is wrong, or other memory is left. What is not found is not needed in this case (a barrier
after the last use, a mask on memory that is there and adds nothing) and stands in tests/ptx/breaks.json; of each such
mask masks.py says why.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.ptx.access import is_atomic
from tests.ptx.blocks import Kernel, made
from tests.ptx.clocks import ACQUIRES, RELEASES
from tests.ptx.counts import Counts
from tests.ptx.launch import Launch, run
from tests.ptx.masks import masked
from tests.ptx.program import Immediate, Instruction, PtxError

NOTHING = Instruction(None, False, "fence", (), (), "(removed)", "")


class Recorded(NamedTuple):
    """A launch, and what the memory of its tensors was before and after."""

    launch: Launch
    memory: list[torch.UntypedStorage]
    before: list[torch.UntypedStorage]
    after: list[torch.UntypedStorage]

    def repeat(self, kernel: Kernel, counts: Counts | None = None) -> bool:
        """Runs another kernel in its place; whether it left the same memory."""
        for storage, kept in zip(self.memory, self.before, strict=True):
            storage.copy_(kept)
        run(self.launch._replace(kernel=kernel), counts or Counts(), np.random.default_rng(1))
        return all(same(a, b) for a, b in zip(self.memory, self.after, strict=True))


def same(a: torch.UntypedStorage, b: torch.UntypedStorage) -> bool:
    return torch.equal(*(torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (a, b)))


def record(emulator: Any, call: Callable[[], None]) -> dict[str, list[Recorded]]:
    """The first launch of each kernel that `call` launches, and its last; its second variant is "name 2"."""
    found: dict[str, list[Recorded]] = {}
    names: dict[int, str] = {}

    def launch(one: Launch) -> None:
        name = one.kernel.program.name
        if id(one.kernel) not in names:
            variant = 1 + sum(each.split()[0] == name for each in found)
            names[id(one.kernel)] = name if variant == 1 else f"{name} {variant}"
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for _, t in one.arguments if torch.is_tensor(t)}
        memory, before = list(storages.values()), [s.clone() for s in storages.values()]
        run(one, Counts(), np.random.default_rng(0))
        kept = found.setdefault(names[id(one.kernel)], [])
        kept[1:] = [Recorded(one, memory, before, [s.clone() for s in memory])]

    emulator.launch = launch
    try:
        call()
    finally:
        del emulator.launch
    return found


def without(kind: str, i: Instruction) -> Instruction:
    """The instruction without what `kind` names."""
    if kind == "mask" and i.opcode == "cp":
        return i._replace(operands=(*i.operands[:3], Immediate(i.operands[2].bits)))
    if kind == "mask":
        return i._replace(guard=None)
    if kind == "order":
        return i._replace(modifiers=tuple("relaxed" if m in (*RELEASES, *ACQUIRES) else m for m in i.modifiers))
    if kind == "scope":
        return i._replace(modifiers=tuple("cta" if m == "gpu" else m for m in i.modifiers))
    return NOTHING


def kinds(i: Instruction) -> tuple[str, ...]:
    """What can be taken from an instruction by itself."""
    if i.opcode == "bar" and "warp" not in i.modifiers:
        return ("barrier",)
    if i.opcode == "cp":
        return ("wait",) if "wait_group" in i.modifiers else ()
    if is_atomic(i):
        ordered = {*RELEASES, *ACQUIRES}.intersection(i.modifiers)
        return (*(("order",) if ordered else ()), *(("scope",) if "gpu" in i.modifiers else ()))
    return ()


def breaks(code: list[Instruction]) -> Iterator[tuple[str, int]]:
    """(what is taken, the number of the instruction); of masks see `found_masks`"""
    yield from ((kind, number) for number, i in enumerate(code) for kind in kinds(i))


def broken(kernel: Kernel, kind: str, numbers: list[int]) -> Kernel:
    code, runs = list(kernel.program.code), list(kernel.runs)
    for number in numbers:
        code[number] = without(kind, code[number])
        runs[number] = made(code[number])
    return kernel._replace(program=kernel.program._replace(code=code), runs=runs)


def is_found(recorded: Recorded, kernel: Kernel) -> bool:
    try:
        return not recorded.repeat(kernel)
    except PtxError:
        return True


def seldom(recorded: Recorded) -> set[int]:
    """The barriers of which this launch says too little: no block came past them or, in a loop, none three times.

    What is not found of a barrier that was passed is not needed: on either side of it no two warps access one place
    such that it matters. In a loop that is known once it has come round.
    """
    kernel, counts = recorded.launch.kernel, Counts()
    recorded.repeat(kernel, counts)
    code, labels = kernel.program.code, kernel.program.labels
    jumps = [(labels[i.operands[0].name], number) for number, i in enumerate(code) if i.opcode == "bra"]
    found = set()
    for number in (number for number, i in enumerate(code) if "barrier" in kinds(i)):
        most = max((times for (at, _), times in counts.passed.items() if at == number), default=0)
        in_loop = any(to <= number <= jump for to, jump in jumps)
        if most < (3 if in_loop else 1):
            found.add(number)
    return found


def tried(launches: list[Recorded]) -> dict[str, list[int]]:
    """kind -> [how many were found, how many were tried]; "seldom": barriers not found, of which `seldom` says why."""
    recorded = launches[0]
    kernel, counted = recorded.launch.kernel, {}
    unclear = seldom(recorded)
    for kind, number in breaks(kernel.program.code):
        found, all_of_them = counted.get(kind, (0, 0))
        seen = is_found(recorded, broken(kernel, kind, [number]))
        counted[kind] = [found + seen, all_of_them + 1]
        if kind == "barrier" and not seen and number in unclear:
            counted["seldom"] = [0, counted.get("seldom", (0, 0))[1] + 1]
    return counted


def found_masks(launches: list[Recorded]) -> dict[str, bool]:
    """Each masked load and store of the kernel -> whether it is found that its mask is gone."""
    kernel = launches[0].launch.kernel
    return {
        text: any(is_found(one, broken(kernel, "mask", numbers)) for one in launches)
        for text, numbers in masked(kernel.program.code).items()
    }
