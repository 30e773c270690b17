"""Compiles every kernel that an op launches at its production shapes, for GPUs that need not be there.

`python -m tests.kernels.compile [OP ...]` prints, per kernel and architecture, what the assembler says of it, as JSON.
A row of the golden table tests/kernels/<op>.json whose digest (given.py) is that of today is taken from there; with
--write (`make kernels`) all are compiled, and become the table. Nothing is described twice: the op's own host functions
run on FakeTensorMode's CUDA tensors, `ops._triton.recording` keeps their launches (launch.py), and those are compiled.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import pathlib
from concurrent.futures import ProcessPoolExecutor

os.environ["TRITON_INTERPRET"] = "0"

import triton

from tests.kernels.facts import facts
from tests.kernels.given import digest, source_of, target_and_options
from tests.kernels.launch import distinct

HERE = pathlib.Path(__file__).parent
OPS = sorted(path.stem for path in HERE.glob("*.json"))
ARCHITECTURES = (80, 90, 100)


def compiled(launch, capability, also):
    """The facts of a launch for one architecture: those of all kernels, and what `also` reads in this one."""
    target, options = target_and_options(launch, capability)
    made = triton.compile(source_of(launch), target=target, options=options)
    return facts(made, capability) | (also(made, launch) if also else {})


def job(asked):
    """What a process does, for one kernel and architecture: (the row, whether it was compiled)."""
    op, name, capability = asked
    given, kept = digest(_launches[op][name], capability), _kept.get(op, {}).get(name, {}).get(f"sm_{capability}", {})
    if kept.get("given") == given:
        return kept, False
    also = getattr(importlib.import_module(f"tests.kernels.{op}"), "also", None)
    return compiled(_launches[op][name], capability, also) | {"given": given}, True


def measure(ops, kept):
    """({op: {"kernel[switches], label": {"sm_80": row, ...}}}, the names of rows that were compiled).

    By as many processes as there are cores: forked, as kernels cannot be pickled. A module whose kernels do not fit
    every GPU names its ARCHITECTURES, one that asks more of them has `also(made, launch) -> dict`.
    """
    global _launches, _kept
    _launches, _kept = {op: distinct(op) for op in ops}, kept
    jobs = [
        (op, name, capability)
        for op in ops
        for name in _launches[op]
        for capability in getattr(importlib.import_module(f"tests.kernels.{op}"), "ARCHITECTURES", ARCHITECTURES)
    ]
    found, again = {op: {name: {} for name in _launches[op]} for op in ops}, []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork) as pool:
        for (op, name, capability), (row, anew) in zip(jobs, pool.map(job, jobs), strict=True):
            found[op][name][f"sm_{capability}"] = row
            again += [f"{op}: {name}, sm_{capability}"] if anew else []
    return found, again


def table(found):
    """The golden table: one line per kernel and architecture."""
    entries = []
    for name, each in found.items():
        lines = [f"  {json.dumps(arch)}: {json.dumps(row)}" for arch, row in each.items()]
        entries.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS)
    parser.add_argument("--write", action="store_true", help="compile all, and make what is found the golden tables")
    arguments = parser.parse_args()
    kept = {} if arguments.write else {op: json.loads((HERE / f"{op}.json").read_text()) for op in OPS}
    found, again = measure(arguments.ops, kept)
    if arguments.write:
        for op in arguments.ops:
            (HERE / f"{op}.json").write_text(table(found[op]), encoding="utf-8")
        print(f"{len(again)} kernels were compiled; look at `git diff tests/kernels`")
    else:
        print(json.dumps({"found": found, "again": again}))


if __name__ == "__main__":
    main()
