"""Compiles every kernel that an op launches at its production shapes, for GPUs that need not be there.

`python -m tests.kernels.compile [OP ...]` prints, per kernel and architecture, what the assembler says of it, as JSON.
A kernel whose digest (digests.py) in the golden table tests/kernels/<op>.json is today's is taken from there; --write
(`make kernels`) writes the others into the table. Nothing is described twice: the op's own host functions run on
FakeTensorMode's CUDA tensors, launch.py records their launches, and those are compiled.
Host functions may choose other tiles and launches for cards with less shared memory: theirs are recorded apart.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
from concurrent.futures import ProcessPoolExecutor

os.environ["TRITON_INTERPRET"] = "0"

import triton

from tests.kernels import table
from tests.kernels.digests import compiling_for, digests, source_of, target_and_options
from tests.kernels.facts import facts
from tests.kernels.launch import distinct, identity

HERE = pathlib.Path(__file__).parent
OPS = sorted(path.stem for path in HERE.glob("*.json"))
# Shared memory of a block, in KiB, by which host functions choose, for each group of architectures.
CARDS = {(80,): 163, (90, 100): 227, (86, 120): 99}


def compiled(launch, capability):
    """The facts of a launch for one architecture; of one that may start early, also what it does before its wait."""
    target, options = target_and_options(launch, capability)
    with compiling_for(target):
        program = triton.compile(source_of(launch), target=target, options=options)
    early = {"early": accesses_before_the_wait(program.asm["ptx"])} if "launch_pdl" in launch.options else {}
    return facts(program, capability) | (early if capability >= 90 else {})


def accesses_before_the_wait(ptx):
    """Accesses to memory that other launches may use, before griddepcontrol.wait; all accesses if there is no wait."""
    before = ptx.partition("griddepcontrol.wait")[0].partition(".entry")[2]
    return len(
        re.findall(r"^\s*(?:@\S+\s+)?(?:ld|st|atom|red|cp|ldmatrix|prefetch)\b(?!\.param|\.shared)", before, re.M)
    )


def jobs(op):
    """[(op, name, launch, capabilities)]: a kernel that is equal for several GPUs is one job."""
    actual = {}
    for capabilities, memory in CARDS.items():
        for name, launch in distinct(op, memory).items():
            actual.setdefault((name, identity(launch)), (launch, []))[1].extend(capabilities)
    return [(op, name, launch, capabilities) for (name, _), (launch, capabilities) in actual.items()]


def measure(ops, tables):
    """({op: {"kernel[switches], label": {"digest": ..., "sm_80": row, ...}}}, the names of kernels that were compiled).

    By as many processes as there are cores: forked, as kernels cannot be pickled.
    """
    global _jobs
    _jobs = [one for op in ops for one in jobs(op)]
    actual, stale = {op: {} for op in ops}, []
    for (op, name, *_), each in zip(_jobs, _in_processes(digests_of, range(len(_jobs))), strict=True):
        actual[op].setdefault(name, {}).update(each)
    for op, entries in actual.items():
        for name, each in entries.items():
            digest = table.joined(each)
            entries[name] = golden = tables.get(op, {}).get(name, {})
            if golden.get("digest") != digest or golden.keys() != {"digest", *each}:
                entries[name] = {"digest": digest}
                stale.append((op, name))
    numbers = [number for number, (op, name, *_) in enumerate(_jobs) if (op, name) in set(stale)]
    for number, rows in zip(numbers, _in_processes(rows_of, numbers), strict=True):
        op, name, *_ = _jobs[number]
        actual[op][name].update(rows)
    return actual, [f"{op}: {name}" for op, name in stale]


def _in_processes(function, numbers):
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("fork")) as pool:
        return list(pool.map(function, numbers))


def digests_of(number):
    """{"sm_80": digest, ...} of the job of that number: launches cannot be pickled."""
    *_, launch, capabilities = _jobs[number]
    return {f"sm_{capability}": digest for capability, digest in digests(launch, capabilities).items()}


def rows_of(number):
    """{"sm_80": row, ...} of the job of that number, which is compiled."""
    *_, launch, capabilities = _jobs[number]
    warps = launch.options.get("num_warps", 4)
    return {
        (arch := f"sm_{capability}"): table.row(compiled(launch, capability), arch, warps)
        for capability in capabilities
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS)
    parser.add_argument("--write", action="store_true", help="write the golden tables")
    arguments = parser.parse_args()
    actual, stale = measure(arguments.ops, {op: table.read(HERE / f"{op}.json") for op in OPS})
    if arguments.write:
        for op in arguments.ops:
            (HERE / f"{op}.json").write_text(table.text(actual[op]), encoding="utf-8")
        print(f"{len(stale)} kernels were compiled; look at `git diff tests/kernels`")
    else:
        print(json.dumps({"actual": actual, "stale": stale}))


if __name__ == "__main__":
    main()
