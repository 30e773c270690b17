"""A run of the preset "small" on real text and one in plain torch: same seed, same batches, one core each, together.

Plain torch is the reference backend of every op in float32, a dense gradient of the softmax table and torch's own dense
AdaGrad. Both read the same rows and sample the same negatives and dropout masks, so their curves can be laid over each
other. The text is `train-*.txt` beside the default text of benchmarks/texts.py, the held-out text that one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
import yaml

from benchmarks import texts
from benchmarks.machine import ROOT
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.pictures import draw_curves
from elmo_fast.pretrain import trainer as training
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.step import Step
from elmo_fast.pretrain.trainer import LanguageModelTrainer

PLAIN, OURS = SIDES = ("plain torch, float32", "elmo_fast, float32")
MINUTES = 20.0
CURVES = ROOT / "benchmarks" / "results" / "pretrain"  # what `make pictures` draws the picture from again
PICTURE = ROOT / "docs" / "pretrain_small.png"
# More updates in the time that a CPU has.
CHANGES = {"batch_size": 32, "log_interval": 10, "heldout_interval": 200, "checkpoint_interval": 500}
TOY = {"dim": 64, "projection_dim": 16, "filters": [[1, 8], [2, 8]], "heldout_interval": None}


def start(side, core, folder, minutes):
    """Start the process of one side, on a core of its own where there are several."""
    command = [sys.executable, "-m", "benchmarks.bench_pretrain", side, str(folder), str(60 * minutes)]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        command = ["taskset", "-c", str(cores[core]), *command]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})


def train(side, folder, seconds):
    """Train one side for so many seconds into folder/SIDE."""
    torch.set_num_threads(1)
    training.LONGEST_SILENCE = float("inf")  # reports of the same steps on both sides
    config = PretrainConfig.from_flat(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    config.run.backend = "reference" if side == PLAIN else "auto"
    config.run.max_seconds, config.run.save_dir = seconds, str(folder / side)
    corpus = open_corpus(config.data.train_prefix)
    heldout = read_corpus(str(config.data.heldout_prefix), corpus.vocabulary)
    model = make_language_model(config, len(corpus.vocabulary))
    (folder / side).mkdir()
    with RunLog(folder / side, lambda line: print(f"{side}: {line}", flush=True)) as record:
        trainer = LanguageModelTrainer(config, model, corpus, record, heldout=heldout)
        if side == PLAIN:
            use_dense_update(trainer)
        training.train(trainer)


def use_dense_update(trainer):
    """Replace the update by one with a dense gradient of the whole table and torch's own AdaGrad."""
    optimizer = trainer.config.optimizer
    weights = trainer.model.parameters()
    trainer.optimizer = torch.optim.Adagrad(weights, optimizer.rate, initial_accumulator_value=1.0, eps=0.0)
    trainer.update = Step(
        trainer.model,
        trainer.optimizer,
        make_input_reader(trainer.model.options, trainer.corpus, "cpu"),
        rows=optimizer.batch_size,
        clip_norm=optimizer.all_clip_norm_val,
        seed=trainer.config.run.seed,
        state_reset=optimizer.state_reset,
        sparse=False,
    )


def bench_run(timed, request, tmp_path):
    heldout = request.config.getoption("text") or texts.DEFAULT
    if not heldout.is_file():
        pytest.skip(f"the text is absent ({heldout.name} and train-*.txt beside it)")
    pattern = heldout.parent / ("train-00.txt" if timed.quick else "train-*.txt")
    prepare(str(pattern), tmp_path / "corpus", min_count=3)
    paths = {"train_prefix": str(tmp_path / "corpus"), "heldout_prefix": str(heldout), "threads": 1}
    config = load_preset("small").flat() | CHANGES | paths | (TOY if timed.quick else {})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    minutes = 0.2 if timed.quick else MINUTES

    def run():
        children = [start(side, core, tmp_path, minutes) for core, side in enumerate(SIDES)]
        return [child.wait() for child in children]

    assert timed("both runs", run, amount=1 / 60, unit="minutes", warmup=0) == [0, 0]
    if not timed.quick:
        draw_curves({side: read_metrics(tmp_path / side) for side in SIDES}, PICTURE)
        for side in SIDES:
            (CURVES / side).mkdir(parents=True, exist_ok=True)
            shutil.copy(tmp_path / side / "metrics.jsonl", CURVES / side)
    metrics = {
        side: [json.loads(line) for line in (tmp_path / side / "metrics.jsonl").read_text("utf-8").splitlines()]
        for side in SIDES
    }
    steps = {side: {each["step"]: each["loss"] for each in metrics[side] if "loss" in each} for side in SIDES}
    common = sorted(steps[PLAIN].keys() & steps[OURS].keys())
    apart = [abs(steps[PLAIN][k] - steps[OURS][k]) / steps[PLAIN][k] for k in common]
    timed.note("relative difference of the losses", f"{max(apart):.1e} at most, to step {common[-1]}")
    timed.note("changes to the preset", CHANGES)
    for side in SIDES:
        for each in metrics[side]:
            if "loss" in each:
                timed.figure("training, small", side, each["words_per_second"], "tokens/s", against=PLAIN)
        held = [
            f"{each['perplexity']:.1f} after {each['step']}" for each in metrics[side] if each.get("event") == "heldout"
        ]
        timed.note(f"held-out perplexity, {side}", held)


if __name__ == "__main__":
    train(sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3]))
