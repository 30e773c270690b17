"""A run of the preset "small" on real text, beside plain torch: same seed, same batches, one core each, at one time.

Plain torch is the reference backend of every op in float32, a dense gradient of the softmax table and torch's own dense
AdaGrad. Both read the same rows and draw the same negatives and dropout masks, so that their curves can be laid over
each other. The text is `train-*.txt` beside the default text of benchmarks/texts.py, the held-out text that one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import torch
import yaml

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, faster, row, significant
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.pictures import draw_curves
from elmo_fast.pretrain import loop
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.log.metrics import read_metrics
from elmo_fast.pretrain.log.run_log import RunLog
from elmo_fast.pretrain.start.start_run import make_language_model
from elmo_fast.pretrain.step.optimizer import make_scheduler
from elmo_fast.pretrain.step.training_step import Step
from elmo_fast.pretrain.trainer import LanguageModelTrainer

SIDES = ("plain torch, float32", "elmo_fast, float32")
MINUTES = 20.0
PICTURE = ROOT / "docs" / "pretrain_small.png"
CURVES = ROOT / "benchmarks" / "results" / "pretrain"  # what the picture is drawn from again by `make pictures`
# Of the preset, these alone are changed: more updates in the time that a CPU has.
CHANGES = {"batch_size": 32, "log_interval": 10, "heldout_interval": 200, "checkpoint_interval": 500}


def run(settings: Settings) -> Report:
    """Rows "tokens/s" per report; notes: how closely the curves agree, and the held-out perplexities."""
    heldout = settings.text or texts.DEFAULT
    if not heldout.is_file():
        return Report(skipped=[f"the text is not there ({heldout.name} and train-*.txt beside it)"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepared(folder, heldout, settings.quick)
        minutes = 0.2 if settings.quick else MINUTES
        workers = [started(side, core, folder, minutes) for core, side in enumerate(SIDES)]
        ended = [worker.wait() for worker in workers]
        if any(ended):
            raise RuntimeError("a side failed; see above")
        metrics = {side: read(folder / side / "metrics.jsonl") for side in SIDES}
        if not settings.quick:
            draw(folder)
            for side in SIDES:
                (CURVES / side).mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / side / "metrics.jsonl", CURVES / side)
    return report(metrics, minutes)


def prepared(folder: pathlib.Path, heldout: pathlib.Path, quick: bool) -> None:
    """The corpus and the configuration that both sides use."""
    pattern = heldout.parent / ("train-00.txt" if quick else "train-*.txt")
    prepare(str(pattern), folder / "corpus", min_count=3)
    changes = CHANGES | {"train_prefix": str(folder / "corpus"), "heldout_prefix": str(heldout), "threads": 1}
    if quick:
        changes |= {"dim": 64, "projection_dim": 16, "filters": [[1, 8], [2, 8]], "heldout_interval": None}
    config = load_preset("small").flat() | changes
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def started(side: str, core: int, folder: pathlib.Path, minutes: float) -> subprocess.Popen[bytes]:
    """The process of one side, on a core of its own where there are several."""
    command = [sys.executable, "-m", "benchmarks.cases.pretrain", side, str(folder), str(60 * minutes)]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        command = ["taskset", "-c", str(cores[core]), *command]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})


def train(side: str, folder: pathlib.Path, seconds: float) -> None:
    """Trains one side, in a process of its own, for so many seconds into folder/SIDE."""
    torch.set_num_threads(1)
    # Reports of the same steps on both sides: none for a long silence.
    loop.LONGEST_SILENCE = float("inf")
    config = PretrainConfig.from_flat(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    plain = side.startswith("plain torch")
    config.run.backend = "reference" if plain else "auto"
    config.run.max_seconds, config.run.save_dir = seconds, str(folder / side)
    corpus = open_corpus(config.data.train_prefix)
    heldout = read_corpus(str(config.data.heldout_prefix), corpus.vocabulary)
    model = make_language_model(config, len(corpus.vocabulary))
    (folder / side).mkdir()
    with RunLog(folder / side, lambda line: print(f"{side}: {line}", flush=True)) as record:
        trainer = LanguageModelTrainer(config, model, corpus, record, heldout=heldout)
        if plain:
            make_plain(trainer)
        loop.train(trainer)


def make_plain(trainer: LanguageModelTrainer) -> None:
    """Replaces the update by one with a dense gradient of the whole table and torch's own AdaGrad."""
    optimizer, total = trainer.config.optimizer, trainer.progress.total_steps
    weights = trainer.model.parameters()
    trainer.optimizer = torch.optim.Adagrad(weights, optimizer.rate, initial_accumulator_value=1.0, eps=0.0)
    trainer.scheduler = make_scheduler(optimizer, trainer.optimizer, total, 0)
    trainer.update = Step(
        trainer.model,
        trainer.optimizer,
        clip_norm=optimizer.all_clip_norm_val,
        seed=trainer.config.run.seed,
        state_reset=optimizer.state_reset,
        sparse=False,
    )


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of a run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def draw(folder: pathlib.Path) -> None:
    """Both runs' curves, for the documentation."""
    draw_curves({side: read_metrics(folder / side) for side in SIDES}, PICTURE)


def report(metrics: dict[str, list[dict[str, Any]]], minutes: float) -> Report:
    """The rows and notes of two runs."""
    steps = {side: {each["step"]: each for each in rows if "loss" in each} for side, rows in metrics.items()}
    held = {side: [each for each in rows if each.get("event") == "heldout"] for side, rows in metrics.items()}
    plain, ours = SIDES
    common = sorted(steps[plain].keys() & steps[ours].keys())
    apart = [abs(steps[plain][k]["loss"] - steps[ours][k]["loss"]) / steps[plain][k]["loss"] for k in common]
    rates = {side: [each["words_per_second"] for each in steps[side].values()] for side in SIDES}
    rows = [row("training, small", side, rates[side], threads=1, unit="tokens/s") for side in SIDES]
    faster(rows[1], rows[0])
    rows[1].error, rows[1].error_to = significant(max(apart), 2), f"plain torch's losses, relative, {common[-1]} steps"
    spans = {f"to step {k}": apart[: common.index(k) + 1] for k in (50, 100, 200, common[-1]) if k in common}
    perplexities, curves = {}, {}
    for side in SIDES:
        perplexities[side] = [f"{each['perplexity']:.1f} after {each['step']} steps" for each in held[side]]
        reported = list(steps[side].values())
        curves[side] = [f"{each['step']}: {each['loss']:.4f}" for each in reported[:: max(1, len(reported) // 12)]]
    notes = {
        "time of each side": f"{minutes:g} minutes",
        "changes to the preset": CHANGES,
        "relative difference of the losses reported": {
            span: f"{max(each):.1e} at most, {sum(each) / len(each):.1e} on average" for span, each in spans.items()
        },
        "held-out perplexity": perplexities,
        "sampled loss by step": curves,
    }
    return Report(rows=rows, notes=notes)


if __name__ == "__main__":
    train(sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3]))
