"""Compiles every kernel that an op launches at its production shapes, for GPUs that need not be there.

`python -m tests.kernels.compile [OP ...]` prints, per kernel and architecture, what the assembler says of it, as JSON.
A row of the golden table tests/kernels/<op>.json whose digest (digests.py) is that of today is taken from there; with
--write (`make kernels`) the others become part of the table. Nothing is described twice: the op's own host functions
run on FakeTensorMode's CUDA tensors, launch.py keeps their launches, and those are compiled.
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


def job(asked):
    """Return the rows of one kernel and whether they were compiled: {"sm_80": (row, True), ...}."""
    op, name, launch, capabilities = asked
    actual = {}
    for capability, digest in digests(launch, capabilities).items():
        kept = _kept.get(op, {}).get(name, {}).get(f"sm_{capability}", {})
        anew = kept.get("given") != digest
        row = compiled(launch, capability) | {"given": digest} if anew else kept
        actual[f"sm_{capability}"] = (row, anew)
    return actual


def jobs(op):
    """[(op, name, launch, capabilities)]: a kernel that is equal for several GPUs is one job."""
    actual = {}
    for capabilities, memory in CARDS.items():
        for name, launch in distinct(op, memory).items():
            actual.setdefault((name, identity(launch)), (launch, []))[1].extend(capabilities)
    return [(op, name, launch, capabilities) for (name, _), (launch, capabilities) in actual.items()]


def measure(ops, kept):
    """({op: {"kernel[switches], label": {"sm_80": row, ...}}}, the names of rows that were compiled).

    By as many processes as there are cores: forked, as kernels cannot be pickled.
    """
    global _jobs, _kept
    _jobs, _kept = [one for op in ops for one in jobs(op)], kept
    actual, again = {op: {} for op in ops}, []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork) as pool:
        for (op, name, *_), rows in zip(_jobs, pool.map(numbered, range(len(_jobs))), strict=True):
            actual[op].setdefault(name, {}).update({arch: row for arch, (row, _) in rows.items()})
            again += [f"{op}: {name}, {arch}" for arch, (_, anew) in rows.items() if anew]
    return actual, again


def numbered(number):
    """`job` of the job of that number: launches cannot be pickled."""
    return job(_jobs[number])


def table(actual):
    """The golden table: one line per kernel and architecture."""
    entries = []
    for name, each in actual.items():
        order = [f"sm_{capability}" for capabilities in CARDS for capability in capabilities]
        lines = [f"  {json.dumps(arch)}: {json.dumps(each[arch])}" for arch in order if arch in each]
        entries.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS)
    parser.add_argument("--write", action="store_true", help="make what is found the golden tables")
    arguments = parser.parse_args()
    kept = {op: json.loads((HERE / f"{op}.json").read_text()) for op in OPS}
    actual, again = measure(arguments.ops, kept)
    if arguments.write:
        for op in arguments.ops:
            (HERE / f"{op}.json").write_text(table(actual[op]), encoding="utf-8")
        print(f"{len(again)} kernels were compiled; look at `git diff tests/kernels`")
    else:
        print(json.dumps({"found": actual, "again": again}))


if __name__ == "__main__":
    main()
