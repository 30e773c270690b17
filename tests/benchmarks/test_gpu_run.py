"""`python -m benchmarks.gpu`: a rehearsal of every section on the CPU; sections that hang, crash or fail."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from benchmarks import machine, results
from benchmarks.gpu import __main__ as runner
from benchmarks.gpu import plan
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import What
from benchmarks.gpu.sections import sanitizer, tests
from benchmarks.gpu.session import Session, Settings
from elmo_fast.tuning.clock import Clock

TIMED = ("lstm", "embed", "encoder", "softmax", "mix", "train_step")


def rehearsed(folder, *words, **environment):
    """Runs it in a process of its own, as a user does; (the process's result, files by section)."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--quick", "--out", str(folder), *words]
    path = folder / "text.txt"
    path.write_text("a first sentence of some words\nand a second one , the last .\n" * 9, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(machine.ROOT), **environment}
    done = subprocess.run(
        [*command, "--text", str(path)], cwd=machine.ROOT, env=environment, capture_output=True, text=True
    )
    files = {name: results.load(folder, f"gpu_{name}") for name in plan.ORDER}
    return done, {name: content for name, content in files.items() if content is not None}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All sections at toy sizes; the native kernels serve, as the interpreter has tests of its own."""
    return rehearsed(tmp_path_factory.mktemp("rehearsal"), TRITON_INTERPRET="0")


def test_every_section_runs_end_to_end(everything):
    """No failure, status 0, every file complete and marked as a rehearsal, no figure given as one of a GPU."""
    done, files = everything
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(files) == list(plan.ORDER)
    for name, content in files.items():
        assert content["rehearsal"] is content["quick"] is content["complete"] is True, name
        assert "failures" not in content, (name, content)
        assert content["gpu"] == {"gpu": "none", "driver": "none", "cuda": "none"} or torch.cuda.is_available()
    assert "a REHEARSAL: no figure means anything" in done.stdout
    assert done.stdout.count("done\n") == len(plan.ORDER)


@pytest.mark.parametrize("name", TIMED)
def test_each_comparison_has_ours_its_floor_and_rivals_that_were_right(everything, name):
    _, files = everything
    rows = files[name]["rows"]
    compared = [
        variant for variant in dict.fromkeys(each.variant for each in rows if each.ours) if "numpy" not in variant
    ]
    assert compared
    for variant in compared:
        sides = {each.side: each for each in rows if each.variant == variant}
        assert len(sides) > 1, variant
        if "log_uniform_sample" in variant:
            continue  # a chain of decisions: no floor to count
        assert sides["elmo_fast"].floor > 0, variant
        assert sides["elmo_fast"].share > 0, variant
        assert all(0 <= each.error < 0.1 and each.median > 0 for each in sides.values()), variant


def test_the_rivals_that_were_promised_are_there(everything):
    _, files = everything
    sides = {name: {each.side for each in files[name]["rows"]} for name in TIMED}
    assert {"nn.LSTM (cuDNN)", "eager loop", "torch.compile"} <= sides["lstm"]
    assert {"eager, AllenNLP's", "torch.compile"} <= sides["embed"]
    for name in ("encoder", "softmax", "mix"):
        assert {"eager", "torch.compile"} <= sides[name]
    assert {"eager, autocast"} <= sides["train_step"]


def test_one_section_brings_its_ceilings(tmp_path):
    """And runs on Triton's interpreter where that is asked for and the op has such a backend."""
    done, files = rehearsed(tmp_path, "--section", "mix", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(files) == ["build", "ceilings", "mix"]
    assert {content["run"] for content in files.values()} == {files["mix"]["run"]}


def test_figures_without_a_gpu_are_refused(tmp_path):
    with pytest.raises(SystemExit):
        runner.main(["--device", "cpu", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_written(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu", "--section", "mix", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(machine.ROOT)}
    done = subprocess.run(command, cwd=machine.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "torch finds no GPU here" in done.stdout
    assert not list(tmp_path.iterdir())


FILE = """
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[1]) / f"gpu_{sys.argv[2]}.json"
def write(**more):
    out.write_text(json.dumps({"run": sys.argv[3], "notes": {}, "skipped": [], "rows": [], "rehearsal": False,
        "quick": False, "gpu": {"gpu": "G", "driver": "d", "cuda": "c"}, "date": "2026-01-01 00:00 UTC", "commit": "c",
        "machine": {"cpu": "C", "flags": [], "cores": 1}, "versions": {"python": "3", "torch": "2", "triton": "3"},
        "complete": True, "command": "x"} | more))
"""
CHILDREN = {
    "hangs": FILE + "write(notes={'kept': 1}, complete=False); time.sleep(60)",
    "crashes": FILE + "import os; os.abort()",
    "fails": FILE + "write(failures=['it is wrong']); sys.exit(1)",
    "ends well": FILE + "write()",
}


@pytest.mark.parametrize(("kind", "state", "told"), [
    ("hangs", "FAILED", ["cut after 1 s; what it had found is kept"]),
    ("crashes", "FAILED", ["its process ended with status -6"]),
    ("fails", "FAILED", ["it is wrong"]),
    ("ends well", "done", []),
])  # fmt: skip
def test_what_becomes_of_a_section_and_of_those_after_it(tmp_path, monkeypatch, capfd, kind, state, told):
    """A section that overruns is cut and says so, one that crashes or fails is recorded; the next one runs."""

    def child(name, given, seconds):
        code = CHILDREN[kind if name == "ceilings" else "ends well"]
        command = [sys.executable, "-c", code, str(given.out), name, given.run]
        return subprocess.Popen(command, process_group=0, stderr=subprocess.DEVNULL)

    monkeypatch.setattr(runner, "child", child)
    monkeypatch.setattr(runner, "GRACE", 0.0)
    monkeypatch.setattr(runner, "allowed", lambda name, sections, left: 1.0 if name == "ceilings" else 30.0)
    stale = results.Report(failures=["of an earlier run"])
    about = machine.describe("x") | {"gpu": {}, "run": "earlier", "rehearsal": False, "quick": False}
    results.save(tmp_path, "gpu_ceilings", stale, about)
    assert runner.main(["--section", "mix", "--out", str(tmp_path)]) == int(state == "FAILED")
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    states = {line[0]: line[-1] for line in lines if line and line[-1] in ("done", "FAILED") and len(line) == 4}
    assert states == {"build": "done", "ceilings": state, "mix": "done"}
    content = json.loads((tmp_path / "gpu_ceilings.json").read_text())
    assert content.get("failures", []) == told
    assert content["notes"] == ({"kept": 1} if kind == "hangs" else {})


def test_a_section_for_which_no_time_is_left_is_not_started(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "run_apart", None)
    assert runner.main(["--section", "mix", "--out", str(tmp_path), "--budget", "5"]) == 1
    assert capsys.readouterr().out.count("no time was left") == 3


@pytest.fixture
def session(tmp_path):
    """A session of a section on the CPU, its ceilings given."""
    made = Session("mix", Settings("cpu", True, tmp_path, "1"), machine.describe_gpu("x"), 100.0)
    made._ceilings = {"copy": 1e9, "float32": 1e9}
    return made


def side(result):
    return lambda: Side(lambda: None, lambda: {"y": torch.tensor(result)})


def test_a_wrong_side_has_no_row_and_the_others_go_on(session):
    """Too far off, not a number, and one that raises: three failures, two rows."""

    def broken():
        raise RuntimeError("it cannot")

    sides = {
        "elmo_fast": side([1.0]),
        "off": side([1.1]),
        "nan": side([float("nan")]),
        "broken": broken,
        "fine": side([1.0]),
    }
    best = compare(session, What("a case", "float32"), sides, lambda: {"y": torch.ones(1)})
    assert set(best) == {"elmo_fast", "fine"}
    assert [each.side for each in session.report.rows] == ["elmo_fast", "fine"]
    told = session.report.failures
    assert [each.split(":")[0] for each in told] == ["a case, off", "a case, nan", "a case, broken"]
    assert "relative error 1.0e-01" in told[0]
    assert "NaN" in told[1]
    assert "RuntimeError: it cannot" in told[2]


def test_without_ours_nothing_is_timed(session):
    sides = {"elmo_fast": side([2.0]), "fine": side([1.0])}
    assert compare(session, What("a case", "float32"), sides, lambda: {"y": torch.ones(1)}) == {}
    assert session.report.rows == []
    assert len(session.report.failures) == 1


def test_what_there_is_no_time_for_is_told(session):
    session._end = 0.0
    assert compare(session, What("a case", "float32"), {"elmo_fast": side([1.0])}, dict) == {}
    assert session.report.skipped == ["a case: no time was left"]


def test_ceilings_of_another_run_are_no_ceilings(session, tmp_path):
    session._ceilings = None
    with pytest.raises(RuntimeError, match="no ceilings of this run"):
        session.ceilings()
    other = Session("ceilings", Settings("cpu", True, tmp_path, "2"), machine.describe_gpu("x"), 100.0)
    other.note("ceilings", {"copy": 1.0})
    with pytest.raises(RuntimeError, match="no ceilings of this run"):
        session.ceilings()
    assert other.ceilings() == {"copy": 1.0}


def test_the_hosts_clock_times_what_is_called(monkeypatch):
    moments = iter([10.0, 12.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    assert Clock(torch.device("cpu")).seconds(lambda: None) == 2.5


SAID = """..F.s [100%]
FAILED tests/ops/test_x.py::test_y[triton] - AssertionError: wrong
1 failed, 3 passed, 1 skipped in 2.00s
"""


def test_pytests_words_are_counted(session):
    tests.keep(session, "tests/ops/test_x.py", 1, SAID)
    tests.keep(session, "tests/ops/test_z.py", 5, "2 deselected in 0.1s")
    tests.keep(session, "tests/ops/test_w.py", None, "")
    tests.keep(session, "tests/ops/test_v.py", 4, "ImportError while loading conftest")
    assert session.report.notes == {
        "tests/ops/test_x.py": "1 failed, 3 passed, 1 skipped",
        "tests/ops/test_z.py": "no test for the GPU",
        "tests/ops/test_w.py": "cut",
        "tests/ops/test_v.py": "cut",
    }
    assert [each.split(": ")[0] for each in session.report.failures] == [f"tests/ops/test_{n}.py" for n in "xwv"]
    assert [each.median for each in session.report.rows] == [3.0, 0.0, 0.0]


def test_tests_of_gpu_backends_are_chosen():
    """Files that name none are not even started."""
    files = {pathlib.Path(file).name for file, _ in tests.chosen_files()}
    assert "test_new_tensors.py" in files
    assert "test_activations.py" not in files


@pytest.mark.parametrize(("status", "said", "rows", "skipped", "failures"), [
    (0, "launched x\n========= ERROR SUMMARY: 0 errors\n", 1, 0, 0),
    (86, "========= Invalid __global__ write\n========= ERROR SUMMARY: 2 errors\n", 0, 0, 1),
    (1, "========= Device not supported. Please refer to the documentation\n", 0, 1, 0),
    (0, "nothing to launch\n========= ERROR SUMMARY: 0 errors\n", 0, 1, 0),
    (1, "x, cuda: the loss is nan\n", 0, 0, 1),
])  # fmt: skip
def test_the_sanitizers_words_are_read(session, status, said, rows, skipped, failures):
    sanitizer.keep(session, "memcheck, cuda kernels", status, said)
    report = session.report
    assert (len(report.rows), len(report.skipped), len(report.failures)) == (rows, skipped, failures)
    if status == 86:
        assert "2 errors" in report.failures[0]


def test_a_sanitizer_that_is_cut_is_a_failure(session):
    sanitizer.keep(session, "memcheck, cuda kernels", None, "")
    assert session.report.failures == ["memcheck, cuda kernels: cut: the section's time was over"]
