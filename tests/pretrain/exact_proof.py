"""Exact shards over many steps: `python -m tests.pretrain.exact_proof [STEPS]`.

Trains the toy in 1, 2, 4 and 8 processes, kills a run and resumes it in other numbers of processes, and lets torchrun
start one again; status 1 where the bytes of the weights, or a report of a step, differ.
"""

import json
import pathlib
import sys
import tempfile

import torch

from tests.pretrain.killed_worker import digest
from tests.pretrain.processes import pretrain, torchrun, words_of

SHARDS = {"batch_size": 8, "exact_shards": 8, "dropout": 0.1, "state_reset": 0.1}


def reports(folder, name):
    """What a run has told of its steps and of held-out text."""
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    told = ("step", "words", "loss_forward", "loss_backward", "gradient_norm", "perplexity")
    return [tuple(row.get(key) for key in told) for row in rows if row.get("event", "heldout") == "heldout"]


def train(folder, name, *sittings, **changes):
    """Trains the toy in sittings of (processes, steps of the run after which it is killed, None for its end).

    Returns the digest of the weights and the reports.
    """
    for count, killed_at in sittings:
        pretrain(folder, name, count, killed_at, **SHARDS | changes)
    return digest(folder, name), reports(folder, name)


def restarted(folder, name, killed_at, **changes):
    """As `train`, in two processes that torchrun starts again when one has killed itself."""
    words = words_of(folder, name, **SHARDS | changes)
    status, output = torchrun(2, "-m", "tests.pretrain.dying_worker", killed_at, *words, restarts=1)
    assert status == 0, output
    assert "resumes after step" in output
    return digest(folder, name), reports(folder, name)


def main() -> int:
    """Prints a line per run; 1 where one differs from that of one process."""
    torch.set_num_threads(1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings = {"max_steps": steps, "checkpoint_interval": max(1, steps // 7)}
    killed = [(1, steps // 4), (4, steps // 2), (2, 3 * steps // 4), (1, None)]
    runs = {"1 process": [(1, None)]} | {f"{count} processes": [(count, None)] for count in (2, 4, 8)}
    runs["killed, 1 -> 4 -> 2 -> 1"] = killed
    found = {}
    with tempfile.TemporaryDirectory(prefix="exact-") as place:
        for name, sittings in runs.items():
            found[name] = train(pathlib.Path(place), name, *sittings, **settings)
            print(f"{name:28}{found[name][0]}", flush=True)
        name = "restarted by torchrun, 2"
        found[name] = restarted(pathlib.Path(place), name, 3 * steps // 5, **settings)
        print(f"{name:28}{found[name][0]}", flush=True)
    differing = [name for name, each in found.items() if each != found["1 process"]]
    print(f"{steps} steps: " + (f"DIFFERENT: {', '.join(differing)}" if differing else "weights and reports are equal"))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
