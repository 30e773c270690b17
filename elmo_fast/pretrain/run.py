"""A whole pretraining run, from a configuration to a model on the disk."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import VOCABULARY_FILE
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.corpus import Corpus, build_vocabulary, read_corpus
from elmo_fast.pretrain.evaluate import Perplexity, evaluate
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.progress import duration
from elmo_fast.pretrain.trainer import Outcome, Trainer
from elmo_fast.pretrain.validation import validate
from elmo_fast.text import Vocabulary, replacing

CONFIG_FILE = "pretrain.yaml"
METRICS_FILE = "metrics.jsonl"
# What options.json tells of the training.
_TRAINING_OPTIONS = (
    "n_train_tokens",
    "n_epochs",
    "batch_size",
    "unroll_steps",
    "n_negative_samples_batch",
    "all_clip_norm_val",
    "learning_rate",
)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind: its end, the trained model and, where held-out text was named, its perplexity."""

    outcome: Outcome
    model: LanguageModel
    vocabulary: Vocabulary
    folder: pathlib.Path
    heldout: Perplexity | None


def prepare_folder(config: PretrainConfig) -> pathlib.Path:
    """Makes save_dir and writes the configuration to it.

    Raises ElmoFastError when it already holds a run, which is never overwritten.
    """
    import yaml

    folder = pathlib.Path(config.run.save_dir)
    if (folder / METRICS_FILE).exists():
        raise ElmoFastError(f"save_dir {folder} already holds a run; give another folder, or move that one away")
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / CONFIG_FILE) as path:
        path.write_text(yaml.safe_dump(config.flat(), sort_keys=False, default_flow_style=None), encoding="utf-8")
    return folder


def vocabulary_for(config: PretrainConfig, report: Callable[[str], None]) -> Vocabulary:
    """The vocabulary that vocab_file names or, without one, that of the training text."""
    data = config.data
    if data.vocab_file is not None:
        return Vocabulary.read(data.vocab_file)
    vocabulary = build_vocabulary(data.train_prefix, data.min_count, data.max_vocab_size)
    report(
        f"vocab  none given, so one was built: {len(vocabulary):,} words that occur at least {data.min_count} times in "
        f"{data.train_prefix}"
    )
    return vocabulary


def new_model(config: PretrainConfig, vocabulary_size: int, device: torch.device | str = "cpu") -> LanguageModel:
    """A model with weights drawn from the configuration's seed; its options say how it is to be trained."""
    optimiser = config.optimiser
    training: dict[str, Any] = {name: getattr(optimiser, name) for name in _TRAINING_OPTIONS}
    options = options_of(config.model, vocabulary_size, sample_softmax=True, **training)
    torch.manual_seed(config.run.seed)
    return LanguageModel(options, precision=config.run.precision, backend=config.run.backend).to(device)


def describe(config: PretrainConfig, model: LanguageModel, corpus: Corpus, trainer: Trainer) -> list[str]:
    """The lines that open a run: the model, the text, the plan."""
    softmax = model.softmax_weight.numel() + model.softmax_bias.numel()
    weights = sum(p.numel() for p in model.parameters()) - softmax
    optimiser, run = config.optimiser, config.run
    steps, limit = trainer.progress.total_steps, trainer.progress.max_seconds
    return [
        f"model  {weights / 1e6:.2f}M weights in the biLM, {softmax / 1e6:.2f}M in the softmax | {run.precision}",
        f"data   {corpus.tokens:,} words, {corpus.sentences:,} sentences, {len(corpus.types):,} distinct words, "
        f"{corpus.vocabulary_size:,} to predict",
        f"plan   batch {optimiser.batch_size} x {optimiser.unroll_steps} = {trainer.progress.words_per_step:,} words a "
        f"step, each read in both directions | {steps:,} steps" + (f" or {duration(limit)}" if limit else ""),
    ]


def pretrain(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> Run:
    """Trains as configured and leaves in save_dir: the model, vocab.txt, pretrain.yaml and metrics.jsonl.

    report: takes each line for people. Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    vocabulary = vocabulary_for(config, report)
    corpus = read_corpus(config.data.train_prefix, vocabulary)
    heldout = None if config.data.heldout_prefix is None else read_corpus(config.data.heldout_prefix, vocabulary)
    model = new_model(config, len(vocabulary), device)
    folder = pathlib.Path(config.run.save_dir)
    trainer = Trainer(config, model, corpus, folder, report=report, device=device)
    prepare_folder(config)
    vocabulary.write(folder / VOCABULARY_FILE)
    for line in describe(config, model, corpus, trainer):
        report(line)
    outcome = trainer.train()
    report(f"done   {outcome.steps:,} steps in {duration(outcome.seconds)}, stopped by {outcome.stopped_by}")
    perplexity = None
    if heldout is not None and outcome.stopped_by != "interrupt":
        perplexity = evaluate(model, heldout, unroll_steps=config.optimiser.unroll_steps, device=device)
        report(f"eval   held-out perplexity {perplexity}")
    return Run(outcome, model, vocabulary, folder, perplexity)
