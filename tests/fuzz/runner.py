"""Runs cases in worker processes: one that crashes or hangs is a finding, reported with its case."""

import collections
import json
import os
import pathlib
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

from tests.fuzz.choices import Draws, smaller

ROOT = pathlib.Path(__file__).parents[2]
TARGETS = sorted(path.stem for path in (pathlib.Path(__file__).parent / "targets").glob("[!_]*.py"))
CPU_SECONDS, SECONDS = 20, 120  # after which a case hangs: of the processor; of the clock
MEMORY = 3 << 29  # bytes that a case may add
RECENT = 30
Case = dict[str, Any]


class Worker:
    """A process of worker.py; started if none runs, so that a crash costs its case alone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - open as long as the worker runs
        self.root = pathlib.Path("/nonexistent")
        self.recent: collections.deque[str] = collections.deque(maxlen=RECENT)

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, text=True, cwd=ROOT, env={"OMP_NUM_THREADS": "1"} | os.environ,
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
        """Ends the process and removes its folder."""
        if self._process is not None:
            self._process.kill()
            with self._process:  # waits, and closes its pipes
                pass
            shutil.rmtree(self.root, ignore_errors=True)
        self._process = None
        self.recent.clear()

    def run(self, target: str, seed: int | None = None, draws: Sequence[int] = ()) -> Case:
        """{} where all is well, else the finding."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        self._errors.truncate(0)
        self._errors.seek(0)
        case = {"target": target, "seed": seed, "draws": list(draws), "memory": MEMORY}
        print(json.dumps(case), file=process.stdin, flush=True)
        begun, cpu = time.monotonic(), _cpu_seconds(process.pid)
        while not select.select([process.stdout], [], [], 1)[0]:
            if _cpu_seconds(process.pid) - cpu > CPU_SECONDS or time.monotonic() - begun > SECONDS:
                return self._hung(process)
        line = process.stdout.readline()
        self.recent.append(f"{target}:{seed}")
        return json.loads(line) if line.endswith("\n") else self._died(process)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-20_000:].decode(errors="replace")

    def _died(self, process: "subprocess.Popen[str]") -> Case:
        status = process.wait()
        kind = signal.Signals(-status).name if status < 0 else f"status {status}"
        return {"kind": kind, "where": place_in(self._said()), "text": self._said()[-6000:], "drawn": []}

    def _hung(self, process: "subprocess.Popen[str]") -> Case:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        message = self._said()
        process.kill()
        process.wait()
        return {"kind": "hang", "where": place_in(message), "text": message[-6000:], "drawn": []}


def place_in(message: str) -> str:
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


def kept(
    folder: pathlib.Path, alone: Worker, recent: Sequence[str], target: str, seed: int, finding: Case
) -> pathlib.Path:
    """Makes the case smaller while it still fails alike, and keeps what repeats it and its files.

    alone: a worker that ran findings only; recent: what the one that found it had run before
    """
    place = folder / f"{target}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    again = alone.run(target, seed)
    text = f"make fuzz CASE={target}:{seed}\n\n{finding['kind']} in {finding['where']}\n\n{finding['text']}\n"
    if again.get("kind") != finding["kind"]:
        text += f"\nNot alone: after {' '.join(recent)}\n"
    draws: Draws = again.get("drawn", [])

    def alike(attempt: Draws) -> bool:
        other = alone.run(target, None, attempt)
        return (other.get("kind"), other.get("where")) == (finding["kind"], finding["where"])

    if draws and alike(draws):
        draws = smaller(draws, alike)
        alone.run(target, None, draws)
        (place / "draws.json").write_text(json.dumps(draws), encoding="ascii")
    if (alone.root / "case").is_dir():
        shutil.copytree(alone.root / "case", place / "case", symlinks=True)
    (place / "finding.txt").write_text(text, encoding="utf-8")
    return place


def attack(
    targets: Sequence[str], folder: pathlib.Path, *, seconds: float, cases: int, first: int = 0
) -> Iterator[tuple[str, int, Case]]:
    """Runs case after case, target after target, until the time or the cases end; yields each and what it found.

    Of findings alike the first alone is kept in `folder`, as "kept" of the finding says.
    """
    until, seen = time.monotonic() + seconds, set()
    with Worker() as worker, Worker() as alone:
        for number in range(cases):
            target, seed = targets[number % len(targets)], first + number // len(targets)
            if time.monotonic() > until:
                return
            recent = list(worker.recent)
            finding = worker.run(target, seed)
            alike = (target, finding.get("kind"), finding.get("where"))
            if finding and alike not in seen:
                seen.add(alike)
                finding["kept"] = str(kept(folder, alone, recent, target, seed, finding))
            yield target, seed, finding
