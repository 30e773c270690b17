"""`make cuda-check`: compiles every .cu for the GPUs that are supported, none of which need be there, and holds what
the assembler says of each kernel (registers, bytes spilled, static shared memory) to the table tests/csrc/cuda.json.

python tools/cuda_check.py [--write]: prints the table; exits with 1 where a kernel is worse than the table says;
--write makes what is found the table.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "csrc" / "cuda.json"
ARCHITECTURES = ("80", "90a", "100")
FLAGS = ("-std=c++20", "-O3", "-Xptxas", "-v,-warn-spills,-warn-lmem-usage")
REGISTER_SLACK = 24  # how many more registers another compiler release may take before someone must look
STATIC_SHARED = 48 * 1024  # more must be asked for at the launch


def readable(mangled):
    """char_cnn_backward_sums_kernel<false, true> of its mangled name."""
    name, flags = re.search(r"\d([a-z_]+_kernel)(?:I((?:Lb[01]E)+)E)?", mangled).groups()
    return name + (
        f"<{', '.join('true' if f == '1' else 'false' for f in re.findall('[01]', flags))}>" if flags else ""
    )


def read(report):
    """{kernel: {"registers": ..., "spilled": ..., "shared": ...}} of what ptxas -v printed."""
    figures = {}
    for part in report.split("Compiling entry function")[1:]:
        shared = re.search(r"(\d+) bytes smem", part)
        figures[readable(part.split("'")[1])] = {
            "registers": int(re.search(r"Used (\d+) registers", part)[1]),
            "spilled": int(re.search(r"(\d+) bytes spill stores", part)[1]),
            "shared": int(shared[1]) if shared else 0,
        }
    return figures


def compiled(source, architecture, nvcc="nvcc"):
    """What ptxas prints for one .cu; RuntimeError with the compiler's words when it refuses."""
    target = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [nvcc, *FLAGS, f"-I{ROOT / 'csrc'}", "-gencode", target, "-cubin", "-o", os.devnull, source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source} for sm_{architecture}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def measure(sources):
    """{kernel: {"sm_80": {...}, ...}} of all kernels in these files."""
    figures = {}
    for source in sources:
        for architecture in ARCHITECTURES:
            for kernel, facts in read(compiled(source, architecture)).items():
                figures.setdefault(kernel, {})[f"sm_{architecture}"] = facts
    return figures


def complaints(table, figures):
    """One sentence per kernel and architecture that is worse than the table says, or that only one of them has."""
    wrong = [
        f"{name}: only {'the table' if name in table else 'the code'} has it" for name in table.keys() ^ figures.keys()
    ]
    for name in table.keys() & figures.keys():
        for architecture, expected in table[name].items():
            got, where = figures[name][architecture], f"{name}, {architecture}"
            if got["spilled"] > expected["spilled"]:
                wrong.append(f"{where}: spills {got['spilled']} bytes, at most {expected['spilled']} are allowed")
            if got["registers"] > expected["registers"] + REGISTER_SLACK:
                wrong.append(f"{where}: {got['registers']} registers, wanted about {expected['registers']}")
            if got["shared"] > STATIC_SHARED:
                wrong.append(f"{where}: {got['shared']} bytes of static shared memory, more than {STATIC_SHARED}")
    return sorted(wrong)


def text(figures):
    """The table as JSON: one line per kernel and architecture."""
    entries = []
    for name, each in sorted(figures.items()):
        lines = [f"  {json.dumps(architecture)}: {json.dumps(facts)}" for architecture, facts in each.items()]
        entries.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--write", action="store_true", help="make what is found the table")
    arguments = parser.parse_args()
    if shutil.which("nvcc") is None:
        sys.exit("cuda-check: nvcc is not on PATH; install the CUDA toolkit, 12.8 or newer")
    figures = measure(sorted(ROOT.glob("csrc/**/*.cu")))
    if arguments.write:
        TABLE.write_text(text(figures), encoding="utf-8")
    width = max(map(len, figures))
    for name, each in sorted(figures.items()):
        for architecture, facts in each.items():
            print(f"{name:<{width}}  {architecture:<7}" + "".join(f"{key} {facts[key]:>5}  " for key in facts).rstrip())
    wrong = complaints(json.loads(TABLE.read_text(encoding="utf-8")), figures)
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
