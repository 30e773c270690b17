"""The preset `small` trained for some minutes by elmo_fast and by plain torch, one after the other, on one thread.

Plain torch is the reference backend of every op, a dense gradient of the softmax table and torch's own AdaGrad. Both
sides start from equal weights, read the same rows and sample the same negatives and dropout masks, so their curves can
be laid over each other. The text is `train-*.txt` next to the default text of benchmarks/inputs.py, the held-out text
that one.
"""

import json
import shutil

import pytest
import torch

from benchmarks import inputs
from benchmarks.machine import ROOT
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.pictures import draw_curves
from elmo_fast.pretrain import trainer as training
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.step import Step

PLAIN, ELMO_FAST = SIDES = ("plain torch, float32", "elmo_fast, float32")
MINUTES = 20.0
CURVES = ROOT / "benchmarks" / "results" / "pretrain"  # what `make pictures` draws the picture from again
# More updates in the time that a CPU has.
CHANGES = {"batch_size": 32, "log_interval": 10, "heldout_interval": 200, "checkpoint_interval": 500}
TOY = {"dim": 64, "projection_dim": 16, "filters": [[1, 8], [2, 8]], "heldout_interval": None}


def train(side, config, folder):
    """Train one side into folder/SIDE and return the rows of its metrics.jsonl."""
    config.run.backend, config.run.save_dir = "reference" if side == PLAIN else "auto", str(folder / side)
    corpus = open_corpus(config.data.train_prefix)
    heldout = read_corpus(str(config.data.heldout_prefix), corpus.vocabulary)
    model = make_language_model(config, len(corpus.vocabulary))
    (folder / side).mkdir()
    with RunLog(folder / side, lambda line: None) as record:
        trainer = training.Trainer(config, model, corpus, record, heldout=heldout)
        if side == PLAIN:
            use_dense_update(trainer)
        trainer.train()
    return [json.loads(line) for line in (folder / side / "metrics.jsonl").read_text("utf-8").splitlines()]


def use_dense_update(trainer):
    """Replace the update by one with a dense gradient of the whole table and torch's own AdaGrad."""
    how, weights = trainer.config.optimizer, trainer.model.parameters()
    trainer.optimizer = torch.optim.Adagrad(weights, how.rate, initial_accumulator_value=1.0, eps=0.0)
    reader = make_input_reader(trainer.model.options, trainer.corpus, "cpu")
    trainer.update = Step(
        trainer.model, trainer.optimizer, reader, rows=how.batch_size, clip_norm=how.all_clip_norm_val,
        seed=trainer.config.run.seed, state_reset=how.state_reset, sparse=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def metrics():
    """{side: rows of its metrics.jsonl}, filled by the benchmarks"""
    return {}


@pytest.mark.parametrize("side", SIDES)
def bench_run(timed, side, metrics, request, tmp_path, monkeypatch):
    heldout = request.config.getoption("text") or inputs.DEFAULT
    if not heldout.is_file():
        pytest.skip(f"the text is absent ({heldout.name} and train-*.txt next to it)")
    prepare(str(heldout.parent / ("train-00.txt" if timed.quick else "train-*.txt")), tmp_path / "corpus", min_count=3)
    paths = {"train_prefix": str(tmp_path / "corpus"), "heldout_prefix": str(heldout), "threads": 1}
    limit = {"max_seconds": 6 if timed.quick else 60 * MINUTES}
    config = load_preset("small").flat() | CHANGES | paths | limit | (TOY if timed.quick else {})
    monkeypatch.setattr(training, "LONGEST_SILENCE", float("inf"))  # reports of the same steps on both sides
    run = lambda: train(side, PretrainConfig.from_flat(config), tmp_path)  # noqa: E731
    rows = metrics[side] = timed("whole run", run, amount=1 / 60, unit="minutes", warmup=0)
    for each in rows:
        if "loss" in each:
            timed.figure("training, small", side, each["words_per_second"], "tokens/s", against=PLAIN)
    perplexities = [f"{each['perplexity']:.1f} after {each['step']}" for each in rows if each.get("event") == "heldout"]
    timed.note(f"held-out perplexity, {side}", perplexities)
    timed.note("changes to the preset", CHANGES)
    if side == ELMO_FAST and PLAIN in metrics:
        true, close = ({each["step"]: each["loss"] for each in metrics[name] if "loss" in each} for name in SIDES)
        apart = [abs(true[step] - close[step]) / true[step] for step in true.keys() & close.keys()]
        timed.note("relative difference of the losses", f"{max(apart):.1e} at most, of {len(apart)} reports")
    if not timed.quick:
        (CURVES / side).mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / side / "metrics.jsonl", CURVES / side)
        if len(metrics) == 2:
            draw_curves({name: read_metrics(CURVES / name) for name in SIDES}, ROOT / "docs" / "pretrain_small.png")
