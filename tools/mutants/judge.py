"""Runs tests in a fork of a process that has imported what they need, so that a run costs the tests alone."""

import dataclasses
import gc
import importlib
import os
import pathlib
import re
import resource
import sys
import time

PLUGIN = "_hypothesis_pytestplugin"  # what the tests use; others cost a second
MEMORY = 8 << 30  # bytes that a run may write to; a mutant may ask for any number
WAIT = 600.0  # seconds after which a run that waits for something is ended; one that computes is ended by its CPU time


@dataclasses.dataclass
class Verdict:
    """How a run ended: `passed`; else `by`, the test that failed, or the signal. `seconds` of CPU time."""

    passed: bool
    by: str
    seconds: float


def prepare() -> None:
    """Imports what every test file imports, less the package itself."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TRITON_INTERPRET", "1")  # as tests/conftest.py; the choice is made when Triton is imported
    sys.dont_write_bytecode = True  # a mutant of the same size and second would pass for its file
    for name in (
        "torch._dynamo",
        "numpy",
        "pytest",
        PLUGIN,
        "hypothesis.strategies",
        "hypothesis.internal.conjecture.engine",
    ):
        importlib.import_module(name)
    if "elmo_fast" in sys.modules:
        raise RuntimeError("elmo_fast is imported already: its mutants would never be loaded")
    gc.freeze()  # pytest's garbage collections skip what is here already


def run(tree: pathlib.Path, tests: list[str], limit: float | None = None) -> Verdict:
    """Runs these test files of a tree, in this order, until the first failure; `limit` in seconds of CPU time."""
    log = tree / "build" / "run.log"
    child = os.fork()
    if child == 0:
        _as_child(tree, tests, limit, log)
    until = time.monotonic() + (WAIT if limit is None else max(WAIT, 10 * limit))
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > until:
            os.kill(child, 9)
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        by = f"signal {-code}"
    else:
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        by = failed[1] if failed else f"exit status {code}"
    return Verdict(code == 0, "" if code == 0 else by, used.ru_utime + used.ru_stime)


def _as_child(tree: pathlib.Path, tests: list[str], limit: float | None, log: pathlib.Path) -> None:
    """Never returns."""
    code = 99
    try:
        os.setpgid(0, 0)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8")
        if not tests[0].startswith("tests/csrc/"):  # AddressSanitizer maps terabytes that it never touches
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if p not in ("", str(tree)))]
        os.environ["PYTHONPATH"] = str(tree)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ["ELMO_FAST_ANY_EXTENSION"] = "1"  # one line of csrc/ is a mutant's
        import pytest

        # Triton's and CUDA's kernels are not what is mutated. Failures are counted, not explained.
        options = ["-x", "-q", "--tb=no", "--assert=plain", "--hypothesis-seed=0", "-k", "not triton and not cuda"]
        code = int(pytest.main([*options, "-p", PLUGIN, *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)
