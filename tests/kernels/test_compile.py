"""Every Triton kernel, compiled ahead of time for sm_80, sm_90 and sm_100 at its production shapes, against a golden
table: the same tensor-core instruction, not a byte more spilled, registers and shared memory within limits."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
OPS = sorted(path.stem for path in HERE.glob("*.json"))
# Bytes a block may have: sm_80 163 KiB, sm_90 and sm_100 227 KiB (CUDA C++ Programming Guide, compute capabilities).
SHARED = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448}
REGISTER_SLACK = 24  # how many more registers another compiler release may take before someone must look

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def complaints(golden, found):
    """One sentence per kernel and architecture that is not as the table says."""
    wrong = [
        f"{name}: only {'the table' if name in golden else 'the code'} has it" for name in golden.keys() ^ found.keys()
    ]
    for name in golden.keys() & found.keys():
        for arch, wanted in golden[name].items():
            got = found[name][arch]
            if got["tensor_cores"] != wanted["tensor_cores"]:
                wrong.append(f"{name}, {arch}: {got['tensor_cores']}, wanted {wanted['tensor_cores']}")
            if got["spilled"] > wanted["spilled"]:
                wrong.append(f"{name}, {arch}: spills {got['spilled']} bytes, wanted at most {wanted['spilled']}")
            if got["registers"] > wanted["registers"] + REGISTER_SLACK:
                wrong.append(f"{name}, {arch}: {got['registers']} registers, wanted about {wanted['registers']}")
            if got["shared"] > SHARED[arch]:
                wrong.append(f"{name}, {arch}: {got['shared']} bytes of shared memory, more than a block may have")
    return sorted(wrong)


@needs_triton
@pytest.mark.parametrize("op", OPS)
def test_kernels_are_as_the_table_says(op):
    command = [sys.executable, "-m", "tests.kernels.compile", op]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert complaints(json.loads((HERE / f"{op}.json").read_text(encoding="utf-8")), found) == []


FINE = {"tensor_cores": "wgmma.mma_async", "registers": 128, "spilled": 0, "shared": 1000}


@pytest.mark.parametrize(
    "change", [{"tensor_cores": "mma.sync"}, {"spilled": 8}, {"registers": 200}, {"shared": 300000}], ids=str
)
def test_each_complaint_is_made(change):
    """The test above can fail."""
    assert complaints({"k": {"sm_90": FINE}}, {"k": {"sm_90": FINE}}) == []
    assert len(complaints({"k": {"sm_90": FINE}}, {"k": {"sm_90": FINE | change}})) == 1
    assert len(complaints({"k": {"sm_90": FINE}}, {})) == 1
