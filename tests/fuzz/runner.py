"""Runs cases in a process of their own, which may crash or hang; hypothesis samples them and makes findings smaller."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st

from tests.fuzz.choices import Below

ROOT = pathlib.Path(__file__).parents[2]
TARGETS = sorted(path.stem for path in (pathlib.Path(__file__).parent / "targets").glob("[!_]*.py"))
CPU_SECONDS, SECONDS = 20, 120  # after which a case hangs: of the processor; of the clock
MEMORY = 3 << 29  # bytes that a case may add
CASES = 50  # of a target before the next one has its turn
SHRINKING = 20  # seconds
Finding = dict[str, Any]


class Worker:
    """A process of worker.py; started if none runs, so that a crash costs its case alone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - open as long as the worker runs
        self.root = pathlib.Path("/nonexistent")

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, text=True, bufsize=1, cwd=ROOT, env={"OMP_NUM_THREADS": "1"} | os.environ,
            )  # fmt: skip
            assert self._process.stdout is not None
            self.root = pathlib.Path(json.loads(self._process.stdout.readline())["root"])
        return self._process

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._errors.close()

    def stop(self) -> None:
        """End the process and remove its folder."""
        if self._process is not None:
            self._process.kill()
            with self._process:  # waits, and closes its pipes
                pass
            shutil.rmtree(self.root, ignore_errors=True)
        self._process = None

    def run(self, target: str, below: Below) -> Finding:
        """Run the case that these random numbers make: {} if all is well, else the finding."""
        process = self._running()
        assert process.stdin is not None
        self._errors.truncate(0)
        self._errors.seek(0)
        question: Any = {"target": target, "memory": MEMORY}
        begun, cpu = time.monotonic(), _cpu_seconds(process.pid)
        while True:
            print(json.dumps(question), file=process.stdin)
            answer = self._answer(process, begun, cpu)
            if "finding" in answer:
                return answer["finding"]
            try:
                question = below(answer["below"])
            except BaseException:  # hypothesis wants no more numbers of this case
                while "finding" not in answer:
                    print("null", file=process.stdin)
                    answer = self._answer(process, begun, cpu)
                raise

    def _answer(self, process: "subprocess.Popen[str]", begun: float, cpu: float) -> dict[str, Any]:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], 1)[0]:
            if _cpu_seconds(process.pid) - cpu > CPU_SECONDS or time.monotonic() - begun > SECONDS:
                return {"finding": self._hung(process)}
        line = process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else {"finding": self._crashed(process)}

    def _stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-20_000:].decode(errors="replace")

    def _crashed(self, process: "subprocess.Popen[str]") -> Finding:
        status = process.wait()
        kind = signal.Signals(-status).name if status < 0 else f"status {status}"
        return {"kind": kind, "where": location(self._stderr()), "text": self._stderr()[-6000:]}

    def _hung(self, process: "subprocess.Popen[str]") -> Finding:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        message = self._stderr()
        process.kill()
        process.wait()
        return {"kind": "hang", "where": location(message), "text": message[-6000:]}


def location(message: str) -> str:
    """Return where a process died: a sanitizer's summary, or the innermost line of elmo_fast or the tests in the
    traceback."""
    summary = re.search(r"SUMMARY: \w+: (\S+ .*)|: (runtime error: .*)", message)
    if summary:
        return re.sub(r"0x[0-9a-f]+|\(.*|/\S*/csrc/", "", summary[1] or summary[2])[:160]
    frames = re.findall(r'File "[^"]*?/((?:elmo_fast|tests)/[^"]+)", line \d+ in (\w+)', message)
    actual = [frame for frame in frames if frame[0].startswith("elmo_fast/")] or frames
    return ":".join(actual[0]) if actual else message.strip()[-120:]


def _cpu_seconds(pid: int) -> float:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def repeated(numbers: Sequence[int]) -> Below:
    """Return the numbers in order, then zeros."""
    rest = iter(numbers)
    return lambda n: min(next(rest, 0), n - 1)


def write_finding(folder: pathlib.Path, root: pathlib.Path, finding: Finding, numbers: Sequence[int]) -> None:
    """Write the text of a finding, the numbers that repeat it, and its files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = f"make fuzz CASE={folder}\n\n{finding['kind']} in {finding['where']}\n\n{finding['text']}\n"
    (folder / "finding.txt").write_text(text, encoding="utf-8")
    (folder / "numbers.json").write_text(json.dumps(numbers), encoding="ascii")
    if (root / "case").is_dir():
        shutil.copytree(root / "case", folder / "case", symlinks=True)


class _Failed(Exception):
    """A finding, for hypothesis."""


class _TimeIsUp(BaseException):
    """Ends hypothesis's search."""


class Hunt:
    """Attacks of one target after the other, with a new seed for each turn."""

    def __init__(self, targets: Sequence[str], folder: pathlib.Path, *, seconds: float, seed: int) -> None:
        self._targets, self._folder, self._seed = targets, folder, seed
        self._end = time.monotonic() + seconds
        self.cases = dict.fromkeys(targets, 0)
        self.findings: dict[tuple[str, str, str], Finding] = {}  # by target, kind and location

    def __iter__(self) -> Iterator[Finding]:
        """Yield each finding that differs from the ones before, until the time is up."""
        with Worker() as worker:
            for number, target in enumerate(itertools.cycle(self._targets), self._seed):
                if time.monotonic() > self._end:
                    return
                identity = self._turn(worker, target, number)
                if identity is not None:
                    yield self.findings[identity]

    def _turn(self, worker: Worker, target: str, seed: int) -> tuple[str, str, str] | None:
        """Run CASES cases; a new finding is made smaller, and its identity returned."""
        identity, end = None, self._end
        folder = self._folder / f"{target}-{seed}"

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=CASES, database=None, derandomize=False, deadline=None, report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        )  # fmt: skip
        @hypothesis.given(st.randoms(use_true_random=False))
        def attack(rng: random.Random) -> None:
            nonlocal identity, end
            if time.monotonic() > end:
                raise _TimeIsUp
            numbers: list[int] = []

            def below(n: int) -> int:
                numbers.append(rng.randrange(n))
                return numbers[-1]

            finding = worker.run(target, below)
            self.cases[target] += 1
            if not finding:
                return
            other = (target, finding["kind"], finding["where"])
            if identity is None and other not in self.findings:
                identity, end = other, time.monotonic() + SHRINKING
            if other != identity:
                return
            write_finding(folder, worker.root, finding, numbers)
            self.findings[other] = {**finding, "case": str(folder), "numbers": numbers}
            raise _Failed

        # Flaky: the case failed only after others, whose traces the worker held; it is reported as it was found.
        with contextlib.suppress(_Failed, _TimeIsUp, hypothesis.errors.Flaky, ExceptionGroup):
            attack()
        return identity
