"""Runs that are killed: at random moments, and at every moment of a save at which the disk is touched.

Usage: killed_worker.py TEXT_FOLDER KILLS. Prints one line of JSON: the digests of the weights of a run that nothing
disturbed and of those that were killed, how often each kind of kill fell, and the rows of metrics.jsonl.
"""

import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import time
import traceback

import torch
from safetensors.torch import load_file

from elmo_fast import files, manifest
from elmo_fast.pretrain import checkpoint, run
from tests.pretrain.toy import toy_config

STEPS, INTERVAL = 120, 7


def configuration(folder: pathlib.Path, name: str, steps: int):
    return toy_config(
        folder, max_steps=steps, n_epochs=1000, checkpoint_interval=INTERVAL, log_interval=5, dropout=0.2,
        save_dir=str(folder / name), heldout_prefix=str(folder / "train-1*"), heldout_interval=30,
        keep_best=True,
    )  # fmt: skip


def train(folder: pathlib.Path, name: str, steps: int = STEPS) -> None:
    run.pretrain(configuration(folder, name, steps), report=lambda line: None)


def in_a_child(work) -> int:
    """The process that does the work; it never returns into the caller's code."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    return child


def was_killed(child: int) -> bool:
    """Whether it was killed; if not, it has come to its end without an error."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), f"exit status {status}"
    return status != 0


def killed_at_random(folder: pathlib.Path, name: str, kills: int, seconds: float) -> int:
    """Kills run after run at random moments of the seconds that one takes, then lets one end; how many were killed."""
    chance, fell = random.Random(0), 0
    for number in range(kills):
        child = in_a_child(lambda: train(folder, name))
        time.sleep(chance.uniform(0.02, (0.05, 0.15)[number % 2] * seconds))
        os.kill(child, signal.SIGKILL)
        fell += was_killed(child)
    assert not was_killed(in_a_child(lambda: train(folder, name)))
    return fell


def dying_at(moment: int) -> None:
    """Makes this process kill itself when it touches the disk for a save for the `moment`-th time."""
    touched = 0

    def wrap(module, name):
        original = getattr(module, name)

        def touching(*arguments, **named):
            nonlocal touched
            touched += 1
            if touched == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        setattr(module, name, touching)

    for module, name in (
        (checkpoint, "flush"), (files, "flush"), (checkpoint.os, "replace"), (checkpoint.shutil, "rmtree"),
        (manifest, "sha256_of"), (checkpoint, "saved_steps"),
    ):  # fmt: skip
        wrap(module, name)


def killed_while_saving(folder: pathlib.Path, name: str) -> int:
    """Kills a run at each moment of its saves in turn, every time one later; how many moments there were."""
    moment = 0
    while True:
        moment += 1

        def work(moment=moment):
            dying_at(moment)
            train(folder, name)

        if not was_killed(in_a_child(work)):
            return moment - 1


def digest(folder: pathlib.Path, name: str) -> str:
    """Of the weights' bytes; the file's header names tensors in an order of its own in every process."""
    found = hashlib.sha256()
    for key, tensor in sorted(load_file(folder / name / "model.safetensors").items()):
        found.update(key.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    torch.set_num_threads(1)
    folder, kills = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    # In this process, so that its children find everything imported and reach their training at once.
    train(folder, "warm", 30)  # the first time is one of imports too
    began = time.monotonic()
    train(folder, "undisturbed")
    seconds = time.monotonic() - began
    found = {
        "random": killed_at_random(folder, "random", kills, seconds),
        "saving": killed_while_saving(folder, "saving"),
    }
    names = ("undisturbed", "random", "saving")
    lines = {name: (folder / name / "metrics.jsonl").read_text().splitlines() for name in names}
    losses = {
        name: [
            (row["step"], row["loss"], row["gradient_norm"]) for row in map(json.loads, lines[name]) if "loss" in row
        ]
        for name in names
    }
    left = {name: sorted(path.name for path in (folder / name / "checkpoints").iterdir()) for name in names}
    digests = [(digest(folder, name), digest(folder, f"{name}/checkpoints/best")) for name in names]
    print(json.dumps({"kills": found, "digests": digests, "losses": losses, "left": left}))


if __name__ == "__main__":
    main()
