"""Every Triton kernel, compiled ahead of time for sm_80, 86, 90, 100 and 120 at its production
shapes, against a golden table (table.py): the same tensor-core instruction, not a byte more spilled, not a warp less on
a multiprocessor, nothing that the assembler may contract. A kernel whose digest is unchanged is not compiled again
(digests.py)."""

import itertools
import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests.kernels import table

HERE = pathlib.Path(__file__).parent
OPS = sorted(path.stem for path in HERE.glob("*.json"))
SPILLED_ON_SMALL_CARDS = 64  # bytes a thread, at most


@pytest.fixture(scope="module")
def compiled():
    """{"actual": {op: {kernel: {"digest": ..., "sm_80": row, ...}}}, "stale": [kernels that were compiled]}.

    From a process of its own: in this one Triton's kernels are interpreted.
    """
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "tests.kernels.compile"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr.splitlines()[-1:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def complaints(golden, actual):
    """One sentence per kernel and architecture that is not as the table says."""
    wrong = [
        f"{name}: only {'the table' if name in golden else 'the code'} has it" for name in golden.keys() ^ actual.keys()
    ]
    for name in golden.keys() & actual.keys():
        for arch in sorted(actual[name].keys() - {"digest"}):
            got, expected = actual[name][arch], golden[name].get(arch, {})
            where, spilled = f"{name}, {arch}", got.get("spilled", 0)
            if got.get("tensor_cores") != expected.get("tensor_cores"):
                wrong.append(f"{where}: {got.get('tensor_cores')}, expected {expected.get('tensor_cores')}")
            if spilled > expected.get("spilled", 0):
                wrong.append(f"{where}: spills {spilled} bytes, expected at most {expected.get('spilled', 0)}")
            if got["warps"] < expected.get("warps", 1):
                wrong.append(f"{where}: {got['warps']} warps on a multiprocessor, expected {expected.get('warps')}")
            if got["warps"] == 0:
                wrong.append(f"{where}: a block takes more registers or shared memory than a multiprocessor has")
            if got.get("early"):
                wrong.append(f"{where}: {got['early']} accesses to memory before it waits for the launch before")
            if got.get("contractible"):
                wrong.append(f"{where}: the assembler may contract {got['contractible']} sums and products")
            if arch in ("sm_86", "sm_120") and spilled > SPILLED_ON_SMALL_CARDS:
                wrong.append(f"{where}: spills {spilled} bytes, more than small GPUs may")
    return sorted(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_kernels_are_as_the_table_says(compiled, op):
    assert complaints(table.read(HERE / f"{op}.json"), compiled["actual"][op]) == []


def test_kernels_ask_the_target_only_whether_it_is_hopper_or_later():
    """So their TTIR is made once for those before and once for the others."""
    sources = [path.read_text(encoding="utf-8") for path in (HERE.parents[1] / "elmo_fast").rglob("*.py")]
    asked = [re.findall(r"target_info\.\S+\(.*?\)", source) for source in sources]
    assert [each for some in asked for each in some] == ["target_info.cuda_capability_geq(9, 0)"]


def test_golden_tables_are_of_todays_kernels(compiled):
    """`make kernels` writes the line of a kernel that changed, and a person looks at it."""
    import triton

    if f"triton=={triton.__version__}" not in (HERE.parents[1] / "constraints.txt").read_text(encoding="utf-8").split():
        pytest.skip(f"the tables are those of the Triton in constraints.txt; this is {triton.__version__}")
    assert compiled["stale"] == [], "run `make kernels`, and commit the tables after a look at their difference"


SAMPLE = """
import json
from tests.kernels.compile import compiled
from tests.kernels.digests import compiling_for, source_of, target_and_options
from tests.kernels.launch import distinct
import triton

first = {op: next(iter(distinct(op, 99).values())) for op in ("unique_rows", "sampled_softmax", "char_cnn")}
differ = [op for op, launch in first.items() if compiled(launch, 86) != compiled(launch, 89)]
launch = next(iter(distinct("log_uniform_sample").values()))
target, options = target_and_options(launch, 90)
with compiling_for(target):
    ptx = triton.compile(source_of(launch), target=target, options=options).asm["ptx"]
print(json.dumps({"differ": differ, "ptx": ptx}))
"""


@pytest.mark.slow
def test_a_sample_for_sm_89_and_the_samplers_barrier():
    """What is compiled for sm_86 stands for sm_89 too. The sampler's warps wait between entering their tries and
    reading: the interpreter, which runs one thread, would not miss the barrier; nor may a first-level cache serve a
    read."""
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-W", "ignore", "-c", SAMPLE]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    sample = json.loads(done.stdout.splitlines()[-1])
    assert sample["differ"] == []
    order = re.findall(r"(?:atom|red)\.\S*min|bar\.sync|ld\.global\.cg", sample["ptx"])
    kinds = [kind for kind, _ in itertools.groupby(each.partition(".")[0] for each in order)]
    assert kinds[kinds.index("atom") :][:3] == ["atom", "bar", "ld"]
