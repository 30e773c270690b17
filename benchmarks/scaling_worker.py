"""One process of the `scaling` case: takes steps, and says what the loopback device carried."""

import json
import pathlib

import torch

from benchmarks.scaling_model import MEASURED
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.processes import Processes, join_processes
from elmo_fast.pretrain.step import gradient_exchange
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.training_step import Step, Words

STEPS, WARMUP = 20, 3
MODEL = ModelConfig(filters=[[1, 32], [2, 32]], dim=512, projection_dim=MEASURED.projection, n_highway=1)


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


def main() -> None:
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        torch.manual_seed(0)
        model = LanguageModel(options_of(MODEL, MEASURED.words, n_negative_samples_batch=MEASURED.samples))
        step = Step(model, AdaGrad(model.parameters()), clip_norm=10.0, processes=processes)
        generator = torch.Generator().manual_seed(processes.rank)
        sizes: list[tuple[int, int]] = []
        all_ids = gradient_exchange._all_ids

        def noted(ids: torch.Tensor, among: Processes) -> torch.Tensor:
            found = all_ids(ids, among)
            sizes.append((len(found), len(ids)))
            return found

        gradient_exchange._all_ids = noted
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
    main()
