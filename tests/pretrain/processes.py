"""Several processes that train the toy on the CPU: joined by torchrun, or forked and joined as torchrun joins them."""

import json
import os
import pathlib
import subprocess
import sys

import yaml

from elmo_fast.cli.main import main
from tests.pretrain.toy import toy_config
from tests.support.backends import HAS_CUDA
from tests.torture.children import all_finish, fork_group

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 240


def torchrun(count, *arguments, restarts=0, environment=None, background=False):
    """Runs `python ARGUMENTS` (a script, or -m and a module) in `count` processes; (exit status, output)."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}",
        f"--max-restarts={restarts}", "--monitor-interval=0.2", *map(str, arguments),
    ]  # fmt: skip
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path} | (environment or {})
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


def words_of(folder, name, **changes):
    """The words of a command that trains the toy into folder/name."""
    settings = {"max_steps": 50, "n_epochs": 1000, "batch_size": 6, "log_interval": 1, "unroll_steps": 3}
    config = toy_config(folder, save_dir=str(folder / name), **settings | changes)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config.flat()))
    return ["pretrain", "--config", str(folder / f"{name}.yaml"), "--device", "cpu"]


def pretrain(folder, name, count, **changes):
    """Trains the toy in `count` processes, forked and joined as torchrun joins them; what they print."""
    words, log = words_of(folder, name, **changes), folder / f"{name}.log"
    if HAS_CUDA:  # where a fork cannot train: tests/support/backends.py
        status, output = torchrun(count, "-m", "elmo_fast", *words)
        assert status == 0, output
        return output

    def work():
        assert main(words) == 0

    assert all_finish(fork_group(work, count, log), log)
    return log.read_text()


def losses(folder, name):
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss_forward"], row["loss_backward"]) for row in rows if "loss" in row]
