"""One step of pretraining with exact shards, in one process and in two, beside the same step without them.

The rows of all processes are the same 64 in each; a process has one core.
"""

import json
import subprocess
import sys

import torch

from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, faster, row
from benchmarks.timing import in_turn, milliseconds
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.processes import Processes, join_processes
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.step.training_step import Step

ROWS, STEPS, WORDS, NEGATIVES = 64, 20, 20_000, 2048
MODEL = {"filters": [[1, 32], [2, 32], [3, 64]], "dim": 1024, "projection_dim": 128, "n_highway": 1}
SHARDS = (1, 2, 4, 8)
# The default stays off where it costs more: 3 %.
GOAL = 1 / 1.03


def run(settings: Settings) -> Report:
    """Rows "ms" per step, of all processes together; how many times as fast as without shards."""
    model = MODEL | ({"dim": 64, "projection_dim": 16} if settings.quick else {})
    report = Report(notes={"step": {"batch": f"{ROWS} x {STEPS}", "words": WORDS, "negatives": NEGATIVES, **model}})
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        command += ["-m", "benchmarks.cases.exact_shards", json.dumps(model), "2" if settings.quick else "12"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        variant = f"one step, {count} process" + "es" * (count > 1)
        taken = json.loads(done.stdout.splitlines()[-1])
        rows = [row(variant, side, times, threads=1, unit="ms") for side, times in taken.items()]
        for mine in rows[1:]:
            faster(mine, rows[0], GOAL)
        report.rows += rows
    return report


def reading(processes: Processes) -> Words:
    """Random words for this process's rows, as frequent as running text has them."""
    first, count = processes.assign_rows(ROWS)
    uniform = torch.rand(2, ROWS, STEPS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    types = ((WORDS + 1.0) ** uniform - 1).long().clamp_(max=WORDS - 1)[:, first : first + count].contiguous()
    spelled = torch.arange(1, 51).expand(WORDS, 50) % 200 + 1
    filled = torch.full((count,), STEPS).numpy()
    return Words(types, types, filled, ROWS * STEPS, first, ROWS, lambda some: spelled[some])


def main(model: dict[str, object], rounds: int) -> None:
    """One process of `run`; the one that leads prints the milliseconds of each side."""
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        words = reading(processes)
        sides = {}
        for shards in (None, *(each for each in SHARDS if each >= processes.size)):
            torch.manual_seed(0)
            made = LanguageModel(options_of(ModelConfig(**model), WORDS, n_negative_samples_batch=NEGATIVES))
            step = Step(made, AdaGrad(made.parameters()), clip_norm=10.0, processes=processes, exact_shards=shards)
            name = "no shards" if shards is None else f"{shards} shard{'s' * (shards > 1)}"
            sides[name] = milliseconds(lambda step=step: (step(words, None, 0), processes.max_(0)))
        taken = in_turn(sides, rounds)
        if processes.leads:
            print(json.dumps(taken))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
