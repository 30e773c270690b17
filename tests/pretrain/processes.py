"""Several processes joined by torchrun, on the CPU."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 240


def torchrun(count, *arguments, restarts=0, environment=None, background=False):
    """Runs `python ARGUMENTS` (a script, or -m and a module) in `count` processes; (exit status, output)."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}",
        f"--max-restarts={restarts}", "--monitor-interval=0.2", *map(str, arguments),
    ]  # fmt: skip
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | (environment or {})
    process = subprocess.Popen(
        command, env=settings, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return process if background else outcome(process)


def outcome(process):
    """(exit status, output) of a launch, which is ended with its workers when it takes too long."""
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun takes its workers along
        output, _ = process.communicate(timeout=60)
        raise AssertionError(f"not done after {SECONDS} s:\n{output}") from None
    return process.returncode, output
