"""Long-lived processes, one per side, that answer requests: libraries with their own environments run in turn."""

import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.machine import ROOT


class Worker:
    """A child that answers one JSON object per line with one; `environment` is added to this process's own."""

    def __init__(
        self, python: str, script: pathlib.Path, arguments: Sequence[str], environment: dict[str, str]
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self._child = subprocess.Popen(
            [python, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **environment},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to `request`; RuntimeError with the child's last words if it ended instead."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._child.wait()
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{self._child.args} ended with status {self._child.returncode}:\n{words}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the child."""
        self._child.__exit__(None, None, None)  # closes the pipes, which ends its loop, and waits
        self._errors.close()


def elmo_worker(library: str, python: str, threads: int, options: dict[str, Any]) -> Worker:
    """A worker that has loaded an ELMo of `library`; see elmo_worker.py for `options` and its requests."""
    environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if library == "elmo_fast":
        environment["PYTHONPATH"] = str(ROOT)
    script = pathlib.Path(__file__).with_name("elmo_worker.py")
    return Worker(python, script, [library, str(threads), json.dumps(options)], environment)
