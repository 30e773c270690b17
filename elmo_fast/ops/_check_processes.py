"""Starts the processes that check units on a GPU (`_check_program`), and returns their answers or how they ended."""

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from elmo_fast.ops._check import MARK, Answer, Unit
from elmo_fast.ops._registry import REPLAYS

# Seconds without an answer after which a unit counts as hanging; compiling takes long on a busy machine.
PATIENCE = 300.0
# Processes at once: compiling keeps processors busy, but each process needs a context on the GPU.
MOST_PROCESSES = 4
# Exit codes of a process that someone else ended; no kernel is to blame for these.
KILLED = tuple(-getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
COMMAND = [sys.executable, "-P", "-m", "elmo_fast.ops._check_program"]


def answers(units: Iterable[Unit], device: torch.device, answered: Callable[[Unit], None]) -> dict[Unit, Answer]:
    """The answers for all units, from several processes. answered: called with each answer, for progress."""
    left: queue.SimpleQueue[Unit] = queue.SimpleQueue()
    units = list(units)
    for unit in units:
        left.put(unit)
    found: dict[Unit, Answer] = {}

    def work() -> None:
        with contextlib.ExitStack() as stack:
            process: _Process | None = None
            while True:
                try:
                    unit = left.get_nowait()
                except queue.Empty:
                    return
                if process is None or (process.ended and process.failed is None):
                    process = stack.enter_context(_process(device))
                found[unit] = process.ask(unit)
                answered(unit)

    count = max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) // 2, len(units)))
    with ThreadPoolExecutor(count) as pool:
        try:
            for each in [pool.submit(work) for _ in range(count)]:
                each.result()
        finally:
            while not left.empty():  # interrupted
                left.get()
    return found


class _Process:
    """One process that checks. ended: it no longer does; failed: why no process can be started, or None."""

    def __init__(self, process: "subprocess.Popen[str]", errors: pathlib.Path) -> None:
        self.process, self.errors, self.ended = process, errors, False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.failed: str | None = None
        self._hung = False
        threading.Thread(target=self._read, daemon=True).start()
        if self._next() != "ready":
            self.failed = f"no process can check them here: {self._end()}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                self._lines.put(line.removeprefix(MARK).strip())
        self._lines.put(None)

    def _next(self) -> str | None:
        """The next answer; None if the process has ended or hangs."""
        try:
            return self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            self.process.kill()
            self._hung = True
            return None

    def ask(self, unit: Unit) -> Answer:
        """The answer; a refusal if the unit ends the process, or hangs."""
        if self.failed is not None:
            return Answer(unable=self.failed)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), f"{json.dumps([*unit, REPLAYS.get(unit.op)])}\n".encode())
        if (line := self._next()) is None:
            ended = f"the process that checked it ended: {self._end()}"
            killed = self.process.returncode in KILLED and not self._hung
            return Answer(unable=f"{unit}: {ended}") if killed else Answer(ended)
        answer = Answer(*json.loads(line))
        self.ended = answer.lost
        return answer

    def _end(self) -> str:
        """Ends the process; how it ended, and the last line that it wrote."""
        self.ended = True
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if self._hung:
            return f"no answer in {PATIENCE:g} s"
        said = self.errors.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"{how}{f', {last[:200]}' if last else ''}"


@contextlib.contextmanager
def _process(device: torch.device) -> Iterator[_Process]:
    """A new process, which finds this very package; no switch of the user's changes what a verdict is on."""
    package = pathlib.Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    ours = {"PYTHONPATH": path, "ELMO_FAST_GPU_CHECK": "0", "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ELMO_FAST_")} | ours
    with tempfile.TemporaryDirectory() as folder:
        errors = pathlib.Path(folder) / "stderr"
        with (
            errors.open("wb") as file,
            subprocess.Popen(
                [*COMMAND, str(device)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            ) as process,
        ):
            try:
                yield _Process(process, errors)
            finally:
                process.kill()
