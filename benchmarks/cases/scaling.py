"""A step on N processes: bytes exchanged, measured between processes on this machine; seconds predicted for GPUs.

docs/scaling.md explains the model.
"""

import json
import pathlib
import subprocess
import sys

import torch

from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, row
from benchmarks.scaling_model import MEASURED, ORIGINAL, Cluster, Shape, exact_step_time, exchanged, step_time
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.processes import Processes, join_processes
from elmo_fast.pretrain.step import table_exchange, tree_exchange
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.step.training_step import Step

GPUS = (1, 2, 4, 8, 16, 64, 256, 1024)
EXACT_GPUS = (8, 64, 1024)
# What one GPU computes is not known before one has been measured: two assumptions, marked as such everywhere.
RATES = (0.6e6, 1.0e6)
STEPS, WARMUP = 20, 3
MODEL = ModelConfig(filters=[[1, 32], [2, 32]], dim=512, projection_dim=MEASURED.projection, n_highway=1)


def run(settings: Settings) -> Report:
    """Rows "MB" that one process sends in a step, measured and predicted; the parts of both are in the notes."""
    measured = [measure(count) for count in ((2,) if settings.quick else (2, 3, 4))]
    measured += [measure(count, exact=True) for count in ((2,) if settings.quick else (2, 4))]
    predicted = [step_time(ORIGINAL, Cluster(), count, rate) for rate in RATES for count in GPUS]
    exact = [exact_step_time(ORIGINAL, Cluster(), count, rate) for rate in RATES for count in EXACT_GPUS]
    notes = {"shape": MEASURED._asdict(), "measured": measured, "predicted": predicted, "exact": exact}
    report = Report(notes=notes)
    for each in measured:
        variant = f"sent by one of {each['processes']:.0f} processes in a step" + ", exact shards" * each["exact"]
        for side, name in (("measured", "sent"), ("predicted", "predicted")):
            report.rows.append(row(variant, side, [each[name] / 1e6], threads=1, unit="MB"))
    return report


def measure(processes: int, exact: bool = False) -> dict[str, float]:
    """Bytes per step and process, sent by the worker in so many processes and predicted; exact: with a shard each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "benchmarks.cases.scaling", *["exact"] * exact]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = json.loads(done.stdout.splitlines()[-1])
    shape = Shape(**{**MEASURED._asdict(), "dense": told["dense"]})
    model = exchanged(shape, processes, union=told["union"], longest=told["longest"])
    return {
        **told,
        "exact": exact,
        "predicted": sum(model.values()),
        **{f"predicted_{name}": size for name, size in model.items()},
    }


def sent_bytes() -> int:
    """What the loopback device has carried since the machine started."""
    line = next(line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if "lo:" in line)
    return int(line.split(":")[1].split()[8])


def words(processes: Processes, generator: torch.Generator) -> Words:
    """A step's reading: random words, as frequent as running text has them, other ones in each process."""
    first, count = processes.assign_rows(MEASURED.rows * processes.size)
    shape = (2, count, MEASURED.unroll_steps)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    types = ((MEASURED.words + 1.0) ** uniform - 1).long().clamp_(max=MEASURED.words - 1)
    spelled = torch.arange(1, 51).expand(MEASURED.words, 50) % 200 + 1
    filled = torch.full((count,), MEASURED.unroll_steps).numpy()
    rows = count * processes.size
    return Words(types, types, filled, rows * MEASURED.unroll_steps, first, rows, lambda some: spelled[some])


def exchange() -> None:
    """One process of `measure`: takes steps, and the first prints what the loopback device carried."""
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        torch.manual_seed(0)
        model = LanguageModel(options_of(MODEL, MEASURED.words, n_negative_samples_batch=MEASURED.samples))
        shards = processes.size if "exact" in sys.argv else None
        step = Step(model, AdaGrad(model.parameters()), clip_norm=10.0, processes=processes, exact_shards=shards)
        generator = torch.Generator().manual_seed(processes.rank)
        sizes: list[tuple[int, int]] = []
        all_ids = table_exchange.all_ids

        def noted(ids: torch.Tensor, among: Processes) -> torch.Tensor:
            found = all_ids(ids, among)
            sizes.append((len(found), len(ids)))
            return found

        table_exchange.all_ids = tree_exchange.all_ids = noted
        for number in range(WARMUP):
            step(words(processes, generator), None, number)
        processes.max_(0)
        sizes.clear()
        before = sent_bytes()
        for number in range(STEPS):
            step(words(processes, generator), None, WARMUP + number)
        processes.max_(0)
        sent = (sent_bytes() - before) / STEPS / processes.size
        longest = processes.max_(round(sum(mine for _, mine in sizes) / len(sizes)))
        if processes.leads:
            dense = sum(p.numel() for p in model.bilm.parameters())
            union = sum(all_of for all_of, _ in sizes) / len(sizes)
            told = {"processes": processes.size, "sent": sent, "dense": dense, "union": union, "longest": longest}
            print(json.dumps(told))


if __name__ == "__main__":
    exchange()
