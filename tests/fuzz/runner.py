"""Runs cases in a process of their own, which may crash or hang. A target and a seed repeat a case."""

import itertools
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
TARGETS = sorted(path.stem for path in (pathlib.Path(__file__).parent / "targets").glob("[!_]*.py"))
CPU_SECONDS, SECONDS = 20, 120  # after which a case hangs: of the processor; of the clock
MEMORY = 3 << 29  # bytes that a case may add
CASES = 50  # of a target before the next one has its turn
Finding = dict[str, Any]


class Worker:
    """A process of worker.py; started if none runs, so that a crash costs its case alone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - open as long as the worker runs
        self._folder = tempfile.TemporaryDirectory(prefix="elmo_fast_fuzz_")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._errors.close()
        self._folder.cleanup()

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, text=True, bufsize=1, cwd=ROOT,
                env={"OMP_NUM_THREADS": "1"} | os.environ | {"TMPDIR": self._folder.name},
            )  # fmt: skip
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # waits, and closes its pipes
                pass
        self._process = None

    def run(self, target: str, seed: int) -> Finding:
        """Run a case: {} if all is well, else the finding."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        self._errors.truncate(0)
        self._errors.seek(0)
        case = {"target": target, "seed": seed, "memory": MEMORY, "seconds": CPU_SECONDS}
        print(json.dumps(case), file=process.stdin)
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            process.send_signal(signal.SIGPROF)
        line = process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else self._ended(process.wait())

    def _ended(self, status: int) -> Finding:
        self._errors.seek(0)
        message = self._errors.read()[-20_000:].decode(errors="replace")
        kind = signal.Signals(-status).name if status < 0 else f"status {status}"
        return {"kind": "hang" if kind == "SIGPROF" else kind, "where": location(message), "text": message[-6000:]}


def location(message: str) -> str:
    """Return where a process died: a sanitizer's summary, or the innermost line of elmo_fast or the tests in the
    traceback."""
    summary = re.search(r"SUMMARY: \w+: (\S+ .*)|: (runtime error: .*)", message)
    if summary:
        return re.sub(r"0x[0-9a-f]+|\(.*|/\S*/csrc/", "", summary[1] or summary[2])[:160]
    frames = re.findall(r'File "[^"]*?/((?:elmo_fast|tests)/[^"]+)", line \d+ in (\w+)', message)
    actual = [frame for frame in frames if frame[0].startswith("elmo_fast/")] or frames
    return ":".join(actual[0]) if actual else message.strip()[-120:]


class Hunt:
    """Attacks of one target after the other, each with a seed of its own."""

    def __init__(self, targets: Sequence[str], folder: pathlib.Path, *, seconds: float, seed: int) -> None:
        self._targets, self._folder, self._seed = targets, folder, seed
        self._end = time.monotonic() + seconds
        self.cases = dict.fromkeys(targets, 0)
        self.findings: dict[tuple[str, str, str], Finding] = {}  # by target, kind and location

    def __iter__(self) -> Iterator[Finding]:
        """Yield each finding that differs from the ones before, until the time is up; write it to a file."""
        turns = (target for target in itertools.cycle(self._targets) for _ in range(CASES))
        with Worker() as worker:
            for seed, target in enumerate(turns, self._seed):
                if time.monotonic() > self._end:
                    return
                finding = worker.run(target, seed)
                self.cases[target] += 1
                identity = (target, finding["kind"], finding["where"]) if finding else None
                if identity is not None and identity not in self.findings:
                    folder = self._folder / f"{target}-{seed}"
                    folder.mkdir(parents=True, exist_ok=True)
                    text = f"make fuzz CASE={folder}\n\n{finding['kind']} in {finding['where']}\n\n{finding['text']}\n"
                    (folder / "finding.txt").write_text(text, encoding="utf-8")
                    self.findings[identity] = {**finding, "case": str(folder)}
                    yield self.findings[identity]
