"""Every Triton kernel, compiled ahead of time for sm_80, 86, 90, 100 and 120 at its production
shapes, against a golden table: the same tensor-core instruction, not a byte more spilled, nothing that the
assembler may contract, registers and shared memory within limits. A row whose digest is unchanged is not compiled again
(digests.py)."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
OPS = sorted(path.stem for path in HERE.glob("*.json"))
# Bytes a block may have: sm_80 163 KiB, sm_90 and sm_100 227 KiB, sm_86, 89 and 120 99 KiB (CUDA C++ Programming Guide,
# compute capabilities).
SHARED = {"sm_80": 166912, "sm_86": 101376, "sm_90": 232448, "sm_100": 232448, "sm_120": 101376}
SPILLED_ON_SMALL_CARDS = 64  # bytes a thread, at most
OTHER_OPS = ("vocabulary_loss", "segment_sum", "gradient_scale", "dropout", "gather_rows", "log_uniform_sample")
REGISTER_SLACK = 24  # how many more registers another compiler release may take before someone must look


@pytest.fixture(scope="module")
def rows():
    """{"found": {op: {kernel: {"sm_80": row, ...}}}, "again": [rows that were compiled]}.

    From a process of its own: in this one Triton's kernels are interpreted.
    """
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "tests.kernels.compile"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def complaints(golden, actual):
    """One sentence per kernel and architecture that is not as the table says."""
    wrong = [
        f"{name}: only {'the table' if name in golden else 'the code'} has it" for name in golden.keys() ^ actual.keys()
    ]
    for name in golden.keys() & actual.keys():
        for arch, expected in golden[name].items():
            got = actual[name][arch]
            if got["tensor_cores"] != expected["tensor_cores"]:
                wrong.append(f"{name}, {arch}: {got['tensor_cores']}, wanted {expected['tensor_cores']}")
            if got["spilled"] > expected["spilled"]:
                wrong.append(f"{name}, {arch}: spills {got['spilled']} bytes, wanted at most {expected['spilled']}")
            if got["registers"] > expected["registers"] + REGISTER_SLACK:
                wrong.append(f"{name}, {arch}: {got['registers']} registers, wanted about {expected['registers']}")
            if got.get("early"):
                wrong.append(f"{name}, {arch}: {got['early']} accesses to memory before it waits for the launch before")
            if got["contractible"]:
                wrong.append(f"{name}, {arch}: the assembler may contract {got['contractible']} sums and products")
            if got["shared"] > SHARED[arch]:
                wrong.append(f"{name}, {arch}: {got['shared']} bytes of shared memory, more than a block may have")
            if arch in ("sm_86", "sm_120") and got["spilled"] > SPILLED_ON_SMALL_CARDS:
                wrong.append(f"{name}, {arch}: spills {got['spilled']} bytes, more than small cards may")
    return sorted(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_kernels_are_as_the_table_says(rows, op):
    kept = json.loads((HERE / f"{op}.json").read_text(encoding="utf-8"))
    assert complaints(kept, rows["found"][op]) == []


def test_a_kernels_name_begins_with_its_op():
    """Triton and CUDA kernels are named <op>_..._kernel, which a trace shows; `kernel_table` cuts names at 70."""
    tables = [HERE / f"{op}.json" for op in OPS] + [HERE.parent / "csrc" / "cuda.json"]
    names = {re.split(r"[\[,<]", each)[0] for path in tables for each in json.loads(path.read_text(encoding="utf-8"))}
    assert len(names) > 40
    assert [name for name in names if not re.fullmatch(rf"({'|'.join([*OPS, *OTHER_OPS])})_(\w+_)?kernel", name)] == []
    assert max(map(len, names)) <= 70


def test_golden_tables_are_of_todays_kernels(rows):
    """Stale rows are compiled and compared by the test above, in every run until `make kernels`: reported as a skip."""
    if stale := rows["again"]:
        pytest.skip(f"{len(stale)} stale rows were compiled; `make kernels` would spare that: {', '.join(stale[:3])}")


@pytest.mark.slow
def test_what_is_compiled_for_sm_89_is_as_for_sm_86():
    """A sample of kernels, so that the table's rows for sm_86 stand for both; `python -m tests.kernels.alike` tries
    all."""
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "tests.kernels.alike", "--sample", "unique_rows", "sampled_softmax", "char_cnn"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"compiled": 3, "differ": {}}


FINE = {"tensor_cores": "wgmma.mma_async", "registers": 128, "spilled": 0, "shared": 1000, "contractible": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"tensor_cores": "mma.sync"},
        {"spilled": 8},
        {"registers": 200},
        {"shared": 300000},
        {"contractible": 2},
        {"early": 1},
    ],
    ids=str,
)
def test_each_complaint_is_made(change):
    """The test above can fail."""
    assert complaints({"k": {"sm_90": FINE}}, {"k": {"sm_90": FINE}}) == []
    assert len(complaints({"k": {"sm_90": FINE}}, {"k": {"sm_90": FINE | change}})) == 1
    assert len(complaints({"k": {"sm_90": FINE}}, {})) == 1
    for change in ({"spilled": 72}, {"shared": 110_000}):
        assert len(complaints({"k": {"sm_86": FINE | change}}, {"k": {"sm_86": FINE | change}})) == 1
