"""One side of `benchmarks/cases/pretrain.py`, in a process of its own."""

import pathlib
import sys

import torch
import yaml

from elmo_fast.corpus import open_corpus, read_corpus
from elmo_fast.pretrain import loop
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.log.run_log import RunLog
from elmo_fast.pretrain.start.start_run import make_language_model
from elmo_fast.pretrain.step.optimizer import make_scheduler
from elmo_fast.pretrain.step.training_step import Step
from elmo_fast.pretrain.trainer import LanguageModelTrainer


def main(side: str, folder: pathlib.Path, seconds: float) -> None:
    """Trains for so many seconds into folder/SIDE."""
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


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3]))
