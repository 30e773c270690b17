"""`make gpu`: builds, checks, runs and measures on one NVIDIA GPU, what decides most first, in nine minutes at most.

Each section is a process of its own with a time limit: one that hangs is stopped, one that fails leaves the others
alone. `make gpu SECTION=second` runs what the first nine minutes leave out, in nine more. Benchmarks write
benchmarks/results/gpu-NAME/ after each section; logs are in OUT/gpu_logs; OUT/gpu.tar.gz has all of it. Ends with
status 1 if anything failed. `--quick` rehearses at toy sizes, with `--device cpu` or on the stand-in for a GPU.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.machine import ROOT

PROGRAMS = f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin"  # where nvcc, ncu and compute-sanitizer are
BENCHMARKS = "benchmarks/bench_gpu.py"
RESULTS = ROOT / "benchmarks" / "results"
SPARE, GRACE = 15, 10  # seconds before its limit in which a benchmark begins nothing, and after it to end by itself
# Each group takes nine minutes at most.
GROUPS = {
    "first": ("build", "check", "commands", "graphs", "train_step", "profile", "embed", "step", "ncu"),
    "second": (
        *("build", "tests", "other_steps", "other_training", "other_embedding"),
        *("losses", "lstm", "parts", "chip", "sanitizer"),
    ),
}
# The second run of `pretrain` resumes the first.
COMMANDS = """
set -ex
rm -rf "$1" && mkdir -p "$1" && cd "$1"
fast() {{ {python} -W error::elmo_fast.errors.PerformanceWarning -m elmo_fast "$@"; }}
{python} -c "from benchmarks.inputs import *; read_text(None).repeated({lines}).write(pathlib.Path('text.txt'))"
fast info
for steps in {half} {steps}; do
    fast pretrain --config tiny --device {device} --train_prefix text.txt --heldout_prefix text.txt --save_dir run \\
        --max_steps $steps --heldout_interval {half} {small}
done
fast eval --device {device} --save_dir run --test_prefix text.txt
fast embed --device {device} --model run --average text.txt vectors.hdf5
"""


class Section(NamedTuple):
    """A command and how long it may take while others wait; why_not: the reason why it cannot run here."""

    seconds: float
    summary: str
    command: Sequence[str] = ()
    why_not: str = ""


def sections(device: str, out: pathlib.Path, quick: bool) -> dict[str, Section]:
    """Return all sections in their order."""
    python, plan = sys.executable, dict[str, Section]()

    def pytest_of(*words: str) -> list[str]:
        return [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]

    def tool(name: str, *words: str) -> tuple[Sequence[str], str]:
        path = shutil.which(name, path=PROGRAMS)
        return ([path, *words], "") if path else ((), f"{name} is absent")

    def bench(name: str, seconds: float, summary: str, words: str) -> None:
        command = pytest_of(BENCHMARKS, "-k", words, "--device", device, f"--benchmark-json={out / name}.json")
        command += ["-rsfE", "-W", "ignore:Not saving anything"]  # where all are skipped
        plan[name] = Section(seconds, summary, [*command, *(["--quick"] if quick else [])])

    build, checked = [python, "setup.py", "-q", "build_ext", "--inplace"], [python, "-m", "elmo_fast", "check"]
    small = (
        "--max_vocab_size 20 --unroll_steps 5 --batch_size 4 --n_negative_samples_batch 8 --filters '[[1,8],[2,8]]'"
        if quick
        else ""
    )
    sizes = {"half": 3 if quick else 15, "steps": 6 if quick else 30, "lines": 40 if quick else 2000, "small": small}
    commands = ["bash", "-c", COMMANDS.format(python=python, device=device, **sizes), "bash", str(out / "commands")]
    workers = str(max(1, len(os.sched_getaffinity(0)) - 1))  # most of the time is compilation
    tests = pytest_of("-rfE", "--tb=short", "-n", workers, "--benchmark-disable", "-k", "triton or cuda")
    graphs = pytest_of("-rfE", "--tb=short", "-n", workers, "--benchmark-disable", "tests/modules/test_graph_replay.py")
    graphs += ["tests/ops/test_graphs.py", "tests/pretrain/test_captured_step.py"]
    # Of the layer's second forward pass the last steps, of its backward pass the first ones.
    counters = ["--clock-control", "none", "--launch-skip", "74", "--launch-count", "12", "-k"]
    counters += ["regex:^projected_lstm_(forward_cells|backward_cells|split_product)_kernel$"]
    counters += ["--section", "SpeedOfLight", "--section", "WarpStateStats", "--metrics", "lts__t_bytes.sum"]
    layer = pytest_of(BENCHMARKS, "--device", device, "--benchmark-disable", "--turns", "1")
    layer += ["-k", "bench_lstm and 128 and backward and elmo_fast and not graph"]
    usual_step, usual_training = (
        "(bench_step and bfloat16 and 128)",
        "(bench_train_step and 128-793471 and not compile)",
    )
    usual_embedding = "(bench_embed and (128 or 819) and not compile and not embedder and not file)"

    plan["build"] = Section(60, "the C++ extension, in place", build, "a rehearsal" if quick else "")
    plan["check"] = Section(90, "every kernel against its reference", [*checked, "--device", device])
    plan["commands"] = Section(60, "pretrain with an evaluation and a resume, eval, embed", commands)
    plan["graphs"] = Section(50, "the tests that capture CUDA graphs", graphs)
    bench("train_step", 60, "the training step against plain torch", usual_training)
    bench("profile", 60, "clocks and kernels of a training step", "bench_clocks or bench_kernels")
    bench("embed", 60, "character ids to activations", usual_embedding)
    bench("step", 60, "a step of the LSTM: fused or split", usual_step)
    plan["ncu"] = Section(40, "L2 traffic and stalls of a step's kernels", *tool("ncu", *counters, *layer))
    plan["tests"] = Section(100, "the tests of kernels and modules", [*tests, "tests/ops", "tests/modules"])
    bench("other_steps", 60, "steps of 832 rows, and in float16", f"bench_step and not {usual_step}")
    bench("other_training", 80, "other training steps", f"bench_train_step and not {usual_training}")
    bench("other_embedding", 60, "sentences to arrays and files", f"bench_embed and not {usual_embedding}")
    bench("losses", 50, "sampled, full and other losses", "bench_losses")
    bench("lstm", 40, "one layer of the projected LSTM", "bench_lstm")
    bench("parts", 30, "encoder, mix and update", "encoder or parts or mix or adagrad")
    bench("chip", 20, "barriers, L2, multicast, launches", "bench_chip")
    sanitize = tool("compute-sanitizer", "--error-exitcode", "86", *checked, "--device", device)
    plan["sanitizer"] = Section(40, "every op under compute-sanitizer", *sanitize)
    if device == "cpu":  # a rehearsal: the suite runs the rest
        others = {name: each for name, each in plan.items() if BENCHMARKS not in each.command}
        plan |= {name: each._replace(why_not="needs a GPU") for name, each in [*others.items(), ("ncu", plan["ncu"])]}
    return plan


def run(section: Section, seconds: float, log: pathlib.Path) -> str:
    """Run a section's command and return how it ended."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    environment["ELMO_FAST_REQUIRE_NATIVE"] = "1"
    command = [*section.command, *(["--seconds", f"{seconds - SPARE:.0f}"] if BENCHMARKS in section.command else [])]
    with log.open("w") as file:
        how = {"cwd": ROOT, "env": environment, "stdout": file, "stderr": subprocess.STDOUT, "process_group": 0}
        child = subprocess.Popen(command, **how)  # type: ignore[call-overload]
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGINT)  # pytest then writes what has been measured
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"stopped after {seconds:.0f} s"
    return "passed" if status == 0 else f"FAILED (status {status})"


def tables(*words: str) -> str:
    """Run benchmarks.table and return what it prints."""
    command = [sys.executable, "-m", "benchmarks.table", *words]
    return subprocess.run(command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections, print the rows of each, and at the end how each ended."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--section", nargs="+", metavar="NAME", help=f"sections, or {' or '.join(GROUPS)}", default=["first"]
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "gpu", help="folder of logs and raw results"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal with --quick")
    parser.add_argument("--seconds", type=float, help="for all sections together; default: the sum of their limits")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args(arguments)
    options.out = options.out.absolute()
    (options.out / "gpu_logs").mkdir(parents=True, exist_ok=True)
    plan = sections(options.device, options.out, options.quick)
    chosen = {name for each in options.section for name in GROUPS.get(each, (each,))}
    if unknown := chosen - plan.keys():
        known = ", ".join([*GROUPS, *plan])
        parser.error(f"--section: {', '.join(sorted(unknown))} is unknown; the sections are {known}")
    names = [name for name in plan if name in chosen]
    total = sum(plan[name].seconds for name in names) if options.seconds is None else options.seconds
    end, states, saved = time.monotonic() + total, [], ""
    for i, name in enumerate(names):
        section, log, raw = plan[name], options.out / "gpu_logs" / f"{name}.log", options.out / f"{name}.json"
        left, begin = end - time.monotonic(), time.monotonic()
        if section.why_not or left <= 0:
            states.append((name, 0.0, f"skipped: {section.why_not}" if section.why_not else "no time was left"))
            continue
        raw.unlink(missing_ok=True)
        seconds = max(section.seconds, left - sum(plan[each].seconds for each in names[i + 1 :]))
        print(f"{name}: {section.summary} (at most {seconds:.0f} s)", flush=True)
        state = run(section, seconds, log)
        states.append((name, time.monotonic() - begin, state))
        measured = raw.exists() and raw.stat().st_size  # a benchmark that was stopped leaves an empty file
        if state != "passed" or not measured:
            print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]))
        if measured:
            print(tables("--show", str(raw)), flush=True)
            saved = tables(*(str(path) for path in sorted(options.out.glob("*.json"))))
    if saved and not options.quick:  # of all sections together; a quick run has shown it all
        print(saved)
    ends = "".join(f"{name:16}{seconds:6.0f} s  {state}\n" for name, seconds, state in states)
    (options.out / "gpu_logs" / "sections.txt").write_text(ends, encoding="utf-8")
    print(ends, end="")
    with tarfile.open(options.out / "gpu.tar.gz", "w:gz") as archive:  # what a lent machine gives back
        for path in [options.out / "gpu_logs", *sorted(options.out.glob("*.json")), *RESULTS.glob("gpu-*")]:
            archive.add(path, path.name)
    return int(any(state != "passed" and not state.startswith("skipped") for _, _, state in states))


if __name__ == "__main__":
    sys.exit(main())
