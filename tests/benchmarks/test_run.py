"""`pytest benchmarks`: every benchmark runs at toy sizes, sides take turns, and a run is reduced to medians."""

import json
import os
import random
import subprocess
import sys
import tarfile

import pytest
from _pytest.mark.expression import Expression

from benchmarks import gpu, machine, table

LONG = ("onnx", "pretrain", "static_quality", "scaling", "embed_file", "embed_parts")
# Whole commands, of which one side, next to another process, does all that the others do.
FEWER_SIDES = "not (pretrain_beside and (ACTIVE or False))"


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
    options = ["--quick", "--text", folder / "text.txt", f"--benchmark-json={folder / 'run.json'}", "-k", FEWER_SIDES]
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


def test_every_result_in_the_repository_names_its_machine():
    """No quick look among them, each with a commit and a processor."""
    for path in (machine.ROOT / "benchmarks" / "results").rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert not content.get("quick"), path
        for each in content["runs"] if "commit" not in content else [content]:  # a file of several runs
            assert each["commit"] != "unknown", path
            assert each["machine"]["cpu"], path
        assert any(content.get(name) for name in ("rows", "kinds", "runs", "judged")), path


# ---------------------------------------------------------------- make gpu


def test_each_benchmark_of_a_gpu_is_in_one_section(tmp_path):
    """By the expression that selects it; ncu looks at one of them again."""
    done = pytest_of("--collect-only", "--turns", 1)
    names = {line.split("::")[1].lower() for line in done.stdout.splitlines() if line.startswith(gpu.BENCHMARKS)}
    chosen = []
    for name, section in gpu.sections("cuda", tmp_path, quick=False).items():
        if gpu.BENCHMARKS in section.command and name != "ncu":
            expression = Expression.compile(section.command[section.command.index("-k") + 1])
            mine = [each for each in names if expression.evaluate(lambda word, each=each: word.lower() in each)]
            assert mine, name
            chosen += mine
    assert sorted(chosen) == sorted(names)


@pytest.mark.parametrize("quick", [False, True])
def test_the_commands_of_a_gpu_are_a_script(tmp_path, quick):
    program, *words = gpu.sections("cuda", tmp_path, quick=quick)["commands"].command
    assert subprocess.run([program, "-n", *words], check=False).returncode == 0


def test_a_section_whose_program_is_absent_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "PROGRAMS", str(tmp_path))
    assert gpu.main(["--section", "ncu", "sanitizer", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ncu                  0 s  skipped: ncu is absent",
        "sanitizer            0 s  skipped: compute-sanitizer is absent",
    ]
    with tarfile.open(tmp_path / "out" / "gpu.tar.gz") as archive:
        assert "ncu is absent" in archive.extractfile("gpu_logs/sections.txt").read().decode()
        assert any(name.startswith("gpu-") and name.endswith(".json") for name in archive.getnames())


def test_make_gpu_rehearses_without_a_gpu(tmp_path, capsys, monkeypatch):
    """Clocks of a step, of the CPU here; what needs a GPU is skipped with its reason."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    words = ["--device", "cpu", "--quick", "--section", "check", "profile", "--out", str(tmp_path)]
    assert gpu.main(words) == 0, (tmp_path / "gpu_logs" / "profile.log").read_text()
    printed = capsys.readouterr().out
    assert "| training step, 128 x 20, 793,471 words: host, queue full | elmo_fast |" in printed
    assert "- skipped: kernels of a step: needs a GPU\n" in printed
    assert "check                0 s  skipped: needs a GPU\n" in printed


@pytest.mark.parametrize(
    ("program", "expected"),
    [("print(1)", "passed"), ("raise SystemExit(3)", "FAILED (status 3)"), ("while True: pass", "stopped after 1 s")],
)
def test_a_section_that_fails_or_hangs_is_reported(program, expected, tmp_path):
    section = gpu.Section(1, "", [sys.executable, "-c", program])
    assert gpu.run(section, 1 if "while" in program else 60, tmp_path / "log") == expected
