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
from tests.kernels.given import digests, source_of, target_and_options
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
    """What a process does, for one kernel: {"sm_80": (its row, whether it was compiled), ...}."""
    op, name = asked
    launch, module = _launches[op][name], importlib.import_module(f"tests.kernels.{op}")
    found = {}
    for capability, given in digests(launch, getattr(module, "ARCHITECTURES", ARCHITECTURES)).items():
        kept = _kept.get(op, {}).get(name, {}).get(f"sm_{capability}", {})
        anew = kept.get("given") != given
        row = compiled(launch, capability, getattr(module, "also", None)) | {"given": given} if anew else kept
        found[f"sm_{capability}"] = (row, anew)
    return found


def measure(ops, kept):
    """({op: {"kernel[switches], label": {"sm_80": row, ...}}}, the names of rows that were compiled).

    By as many processes as there are cores: forked, as kernels cannot be pickled. A module whose kernels do not fit
    every GPU names its ARCHITECTURES, one that asks more of them has `also(made, launch) -> dict`.
    """
    global _launches, _kept
    _launches, _kept = {op: distinct(op) for op in ops}, kept
    jobs = [(op, name) for op in ops for name in _launches[op]]
    found, again = {op: {} for op in ops}, []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork) as pool:
        for (op, name), rows in zip(jobs, pool.map(job, jobs), strict=True):
            found[op][name] = {arch: row for arch, (row, _) in rows.items()}
            again += [f"{op}: {name}, {arch}" for arch, (_, anew) in rows.items() if anew]
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
