"""`make gpu`: builds, trains a step, checks and measures on one NVIDIA GPU, the most valuable first, in nine minutes.

Each section is a process of its own with a time limit: one that hangs is stopped, one that fails leaves the others
alone. Benchmarks write benchmarks/results/gpu-NAME/gpu.json after each section; logs are in OUT/gpu_logs. Ends with
status 1 if anything failed. `--device cpu --quick` rehearses the benchmarks at toy sizes without a GPU.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.machine import ROOT

TOTAL = 530  # seconds


class Section(NamedTuple):
    """A command and how long it may take while others wait."""

    seconds: float
    summary: str
    command: list[str]


def sections(device: str, out: pathlib.Path, quick: bool) -> dict[str, Section]:
    """Return all sections, the most valuable first."""
    python = sys.executable

    def bench(words: str, name: str) -> list[str]:
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "benchmarks/bench_gpu.py", "-k", words]
        return [*command, "--device", device, f"--benchmark-json={out / name}.json", *(["--quick"] if quick else [])]

    workers = str(max(1, len(os.sched_getaffinity(0)) - 1))  # most of the time is compilation
    tests = [python, "-m", "pytest", "-q", "-rfE", "--tb=short", "-n", workers, "--benchmark-disable"]
    tests += ["-k", "triton or cuda", "tests/ops", "tests/modules", "tests/pretrain/test_steps_on_gpu.py"]
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    checked = [python, "-m", "elmo_fast", "check", "--device", device]
    plan = {
        "build": Section(70, "the C++ extension, in place", [python, "setup.py", "-q", "build_ext", "--inplace"]),
        "train_step": Section(
            60, "one step of pretraining, 128 x 20, 10,000 words", bench("train_step and 10000", "a")
        ),
        "check": Section(60, "every GPU op against its reference", checked),
        "embed": Section(50, "sentences to activations", bench("bench_embed", "b")),
        "train_steps": Section(50, "steps with 793,471 words", bench("train_step and 793471", "d")),
        "tests": Section(110, "the tests of ops and modules on the GPU", tests),
        "lstm": Section(60, "one layer of the projected LSTM", bench("bench_lstm", "c")),
        "ops": Section(60, "encoder, losses, mix, update", bench("encoder or losses or mix or adagrad", "e")),
    }
    if sanitizer:
        plan["sanitizer"] = Section(
            40, "every op under compute-sanitizer", [sanitizer, "--error-exitcode", "86", *checked]
        )
    if device == "cpu":  # a rehearsal: the rest runs in the suite
        plan = {name: each for name, each in plan.items() if "benchmarks/bench_gpu.py" in each.command}
    return plan


def run(section: Section, seconds: float, log: pathlib.Path) -> str:
    """Run a section's command and return how it ended."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    environment["ELMO_FAST_REQUIRE_NATIVE"] = "1"
    with log.open("w") as file:
        how = {"cwd": ROOT, "env": environment, "stdout": file, "stderr": subprocess.STDOUT, "process_group": 0}
        child = subprocess.Popen(section.command, **how)  # type: ignore[call-overload]
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"stopped after {seconds:.0f} s"
    return "passed" if status == 0 else f"FAILED (status {status})"


def main() -> int:
    """Run the sections and print the tables last."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--section", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "gpu", help="folder of logs and raw results"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal with --quick")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for all sections together")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    options.out = options.out.absolute()
    (options.out / "gpu_logs").mkdir(parents=True, exist_ok=True)
    plan = sections(options.device, options.out, options.quick)
    if unknown := set(options.section or ()) - plan.keys():
        parser.error(f"--section: {', '.join(sorted(unknown))} is unknown; the sections are {', '.join(plan)}")
    names = [name for name in plan if name in (options.section or plan)]
    end, states = time.monotonic() + options.seconds, []
    for i, name in enumerate(names):
        left = end - time.monotonic()
        later = sum(plan[each].seconds for each in names[i + 1 :])
        seconds = max(plan[name].seconds, left - later)
        print(f"{name}: {plan[name].summary} (at most {seconds:.0f} s)", flush=True)
        begin = time.monotonic()
        log = options.out / "gpu_logs" / f"{name}.log"
        state = run(plan[name], seconds, log) if left > 0 else "no time was left"
        print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]) if left > 0 else "")
        states.append((name, time.monotonic() - begin, state))
        if left > 0 and (raw := [str(path) for path in sorted(options.out.glob("?.json"))]):
            subprocess.run([sys.executable, "-m", "benchmarks.table", *raw], cwd=ROOT, check=False)
    for name, seconds, state in states:
        print(f"{name:12}{seconds:6.0f} s  {state}")
    return int(any(state != "passed" for _, _, state in states))


if __name__ == "__main__":
    sys.exit(main())
