"""`pytest benchmarks`: every benchmark runs at toy sizes, sides take turns, and a run is reduced to medians."""

import json
import os
import random
import subprocess
import sys

import pytest
import torch

from benchmarks import bench_gpu, gpu, machine, table
from benchmarks.elmo_worker import Worker

LONG = ("pretrain", "static_quality", "scaling", "embed_file", "embed_parts")


def pytest_of(*words, **environment):
    """Run pytest on benchmarks in a process of its own, as `make bench` does."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "benchmarks", *map(str, words)]
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"
    }  # it would time nothing
    environment = {**inherited, "PYTHONPATH": str(machine.ROOT), **environment}
    return subprocess.run(command, cwd=machine.ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """(pytest's process, {case: result}) of all but the long cases, on a text of 300 sentences."""
    folder = tmp_path_factory.mktemp("bench")
    random.seed(0)
    words = [f"word{i}" for i in range(400)]
    lines = [" ".join(random.choices(words, k=random.randint(1, 30))) + "\n" for _ in range(300)]
    (folder / "text.txt").write_text("".join(lines))
    cases = [case for case in table.cases() if case not in LONG]
    options = ["--quick", "--text", folder / "text.txt", f"--benchmark-json={folder / 'run.json'}"]
    done = pytest_of(*options, "--case", *cases, ELMO_FAST_PEER_PYTHON="", TRITON_INTERPRET="0")
    return done, table.reduce_run(json.loads((folder / "run.json").read_text()))


@pytest.mark.slow
def test_every_benchmark_runs_at_toy_sizes(quick_run):
    done, contents = quick_run
    assert done.returncode == 0, done.stdout[-3000:]
    assert set(contents) == {case for case in table.cases() if case not in LONG}
    for case, content in contents.items():
        assert len(content["rows"]) >= 2, case
        assert all(row["median"] >= 0 for row in content["rows"]), case
        assert "QUICK: no figure means anything" in table.case_table(content)


@pytest.mark.slow
def test_a_quick_run_is_not_saved(quick_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "reduce_run", lambda run: quick_run[1])
    (tmp_path / "run.json").write_text('{"benchmarks": []}')
    monkeypatch.setattr(table, "README", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("")
    monkeypatch.setattr(table, "ROOT", tmp_path)
    table.main([str(tmp_path / "run.json")])
    assert "limits: a quick run is not saved" in capsys.readouterr().out
    assert not list(tmp_path.rglob("limits.json"))


def test_sides_take_turns():
    """All sides in the first turn, then all again."""
    done = pytest_of("--collect-only", "--case", "corpus", "--turns", 2, "-k", "batches")
    names = [line.split("bench_")[-1] for line in done.stdout.splitlines() if "::" in line]
    sides = [f"{turn}-{side}" for turn in (0, 1) for side in ("in memory", "from files")]
    assert names == [f"batches[{side}-{count}]" for count in (128, 1024) for side in sides]


def run_of(**sides):
    """Return a file of pytest-benchmark: {side: seconds of each turn}."""
    info = {"case": "toy", "variant": "v", "unit": "tokens/s", "amount": 100.0, "threads": 1, "against": "peer"}
    benchmarks = [
        {"extra_info": {**info, "side": side, "figures": [], "notes": {"text": "t"}}, "stats": {"data": [seconds]}}
        for side, turns in sides.items()
        for seconds in turns
    ]
    benchmarks[0]["extra_info"]["figures"] = [{"variant": "size", "side": "peer", "value": 3.0, "unit": "MiB"}]
    about = machine.describe("make bench") | {"quick": False}
    return {"elmo_fast": about, "benchmarks": benchmarks, "skipped": {"toy": ["that: absent"]}}


def test_turns_become_medians_and_ratios():
    content = table.reduce_run(run_of(peer=[2.0, 1.0, 4.0], ours=[0.5, 0.5, 0.25]))["toy"]
    rows = {(row["variant"], row["side"]): row for row in content["rows"]}
    assert (rows["v", "peer"]["median"], rows["v", "peer"]["ratio"], rows["v", "peer"]["samples"]) == (50.0, None, 3)
    assert (rows["v", "ours"]["median"], rows["v", "ours"]["ratio"]) == (200.0, 4.0)
    assert rows["size", "peer"]["median"] == 3.0
    assert (content["notes"], content["skipped"]) == ({"text": "t"}, ["that: absent"])
    assert {"cpu", "cores", "flags"} <= content["machine"].keys()
    assert {"python", "torch", "numpy", "pytest-benchmark"} <= content["versions"].keys()


def test_a_result_comes_back_as_it_was_saved(tmp_path):
    content = table.reduce_run(run_of(peer=[2.0], ours=[1.0]))["toy"]
    path = table.save(content, tmp_path)
    assert path == tmp_path / machine.folder() / "toy.json"
    assert table.load("toy", tmp_path) == [content]
    assert table.load("other", tmp_path) == []


@pytest.mark.parametrize(("unit", "ratio"), [("tokens/s", 2.0), ("ms", 0.5)])
def test_more_of_a_rate_is_faster_and_less_of_a_time(unit, ratio):
    rows = [{"variant": "v", "side": side, "median": v, "unit": unit} for side, v in (("ours", 20.0), ("peer", 10.0))]
    assert table.ratio(rows[0] | {"against": "peer"}, rows) == ratio


def test_four_digits_are_significant():
    assert [machine.significant(v) for v in (123456.0, 0.000123456, 0.0)] == [123500.0, 0.0001235, 0.0]


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="this CPU has no AVX2")
@pytest.mark.parametrize(("limit", "expected"), [("avx2", "AVX2"), ("", torch.backends.cpu.get_cpu_capability())])
def test_a_measurement_with_avx2_limits_torch_to_it(limit, expected):
    """torch reads the environment once: the package sets it before anything imports torch."""
    program = "import benchmarks.conftest, torch; print(torch.backends.cpu.get_cpu_capability())"
    rest = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    environment = rest | {"ELMO_FAST_ISA": limit}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == expected


def test_every_result_in_the_repository_names_its_machine():
    """No quick look among them, each with a commit and a processor."""
    for path in (machine.ROOT / "benchmarks" / "results").rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert not content.get("quick"), path
        for each in content["runs"] if "commit" not in content else [content]:  # a file of several runs
            assert each["commit"] != "unknown", path
            assert each["machine"]["cpu"], path
        assert any(content.get(name) for name in ("rows", "kinds", "runs", "judged")), path


def test_a_graph_side_is_checked_by_what_its_replay_left(monkeypatch):
    """Not by the call that it was captured from; what the graph holds is its memory."""
    notes = {}

    class Timed:
        note = error = staticmethod(lambda *_: None)

        def figure(self, variant, side, value, unit, **_):
            notes["memory"] = value

        def __call__(self, variant, run, **_):
            notes["timed"] = run()

    right, used = torch.ones(3), iter((5 * 2**20, 2 * 2**20) * 2)
    monkeypatch.setattr(bench_gpu, "used_memory", lambda device, before=None: next(used))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for replayed in (right, 2 * right):
        monkeypatch.setattr(bench_gpu, "graph_of", lambda call, replayed=replayed: lambda: [replayed])
        measured = lambda: bench_gpu.measure(  # noqa: E731
            Timed(), torch.device("cuda"), "x", bench_gpu.GRAPH, lambda: [right], [right], "float32", values=list
        )
        if replayed is right:
            measured()
        else:
            with pytest.raises(AssertionError, match=r"relative error 1.0e\+00"):
                measured()
    assert notes == {"memory": 2.0, "timed": None}


def test_worker_answers_and_says_how_it_died(tmp_path):
    """One JSON object per line each way; the error of a child that ends holds its last words."""
    script = tmp_path / "child.py"
    script.write_text(
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    if request['do'] == 'die':\n"
        "        sys.exit('so it goes')\n"
        "    print(json.dumps({'twice': 2 * request['value']}), flush=True)\n"
    )
    worker = Worker(sys.executable, [], script)
    assert worker.ask(do="twice", value=21) == {"twice": 42}
    with pytest.raises(RuntimeError, match="status 1:\nso it goes"):
        worker.ask(do="die")
    worker.close()


# ---------------------------------------------------------------- make gpu


def test_sections_begin_with_a_step_then_the_check(tmp_path):
    plan = gpu.sections("cuda", tmp_path, quick=False)
    assert list(plan)[:3] == ["build", "train_step", "check"]
    assert "train_step and 10000" in plan["train_step"].command
    assert sum(section.seconds for section in plan.values()) <= gpu.TOTAL + 40


@pytest.mark.parametrize(
    ("program", "expected"),
    [("print(1)", "passed"), ("raise SystemExit(3)", "FAILED (status 3)"), ("while True: pass", "stopped after 1 s")],
)
def test_a_section_that_fails_or_hangs_is_reported(program, expected, tmp_path):
    section = gpu.Section(1, "", [sys.executable, "-c", program])
    assert gpu.run(section, 1 if "while" in program else 60, tmp_path / "log") == expected
