"""The digest of a golden row changes with whatever changes the kernel."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
KERNEL = """
import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)

@triton.jit
def callee(value):
    return value * SCALE

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, callee(tl.load(x + i, mask=i < n)), mask=i < n)
"""
USUAL = {"source": KERNEL, "dtype": "float32", "n": 64, "block": 64, "num_warps": 4, "capability": 90}
CHANGES = {
    "the kernel": {"source": KERNEL.replace("i < n", "i <= n")},
    "its callee": {"source": KERNEL.replace("value *", "value +")},
    "a global constant": {"source": KERNEL.replace("2.0", "3.0")},
    "a constant argument": {"block": 128},
    "a dtype": {"dtype": "float16"},
    "whether 16 divides an argument": {"n": 63},
    "an argument that becomes a constant": {"n": 1},
    "an option": {"num_warps": 8},
    "the GPU": {"capability": 80},
}
REMARKS = {
    "comments": {"source": "# a remark\n" + KERNEL.replace("    i = ", "    # another\n    i = ")},
    "another number": {"n": 128},
}

DIGESTS = """
import importlib.util, json, sys, torch
from tests.kernels.digests import digests
from tests.kernels.launch import Launch
results = {}
for number, (name, asked) in enumerate(json.load(sys.stdin).items()):
    path = f"{sys.argv[1]}/kernel{number}.py"
    open(path, "w").write(asked["source"])
    spec = importlib.util.spec_from_file_location("changed", path)  # names of modules are in the TTIR
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = (torch.empty(4, dtype=getattr(torch, asked["dtype"])), asked["n"])
    options = {"num_warps": asked["num_warps"], "num_stages": 3}
    launch = Launch(module.kernel, arguments, {"BLOCK": asked["block"]}, options)
    results[name] = digests(launch, [asked["capability"]])[asked["capability"]]
print(json.dumps(results))
"""


def run(program, arguments, *words):
    """Return a program's output, JSON, from a process of its own, whose kernels compile."""
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-c", program, *words]
    compiling = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, cwd=ROOT, env=compiling, input=json.dumps(arguments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_digest_changes_with_the_kernel_and_with_nothing_else(tmp_path):
    asked = {"usual": {}} | CHANGES | REMARKS
    actual = run(DIGESTS, {name: USUAL | change for name, change in asked.items()}, str(tmp_path))
    assert len({actual[name] for name in ("usual", *CHANGES)}) == 1 + len(CHANGES)
    assert {actual[name] for name in REMARKS} == {actual["usual"]}


def test_kernels_ask_the_target_only_whether_it_is_hopper_or_later():
    """So their TTIR is made once for those before and once for the others."""
    asked = [
        re.findall(r"target_info\.\S+\(.*?\)", path.read_text("utf-8")) for path in (ROOT / "elmo_fast").rglob("*.py")
    ]
    assert [each for some in asked for each in some] == ["target_info.cuda_capability_geq(9, 0)"]
