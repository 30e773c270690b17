"""A whole pretraining run, from a configuration to a model on the disk; called again, it goes on where it was."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import torch

from elmo_fast.corpus import Corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import remove_partial
from elmo_fast.pretrain.checkpoint import CHECKPOINTS, VOCABULARY_FILE, remove_unfinished, save_model
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.going_on import check_same_run, snapshot_to_go_on_from
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.lock import FolderLock
from elmo_fast.pretrain.origin import Origin, origin_of
from elmo_fast.pretrain.peers import Peers, joined, own_device
from elmo_fast.pretrain.plan import plan
from elmo_fast.pretrain.progress import duration
from elmo_fast.pretrain.record import METRICS_FILE, Record
from elmo_fast.pretrain.snapshot import Position
from elmo_fast.pretrain.texts import heldout_corpus, training_corpus
from elmo_fast.pretrain.trainer import Outcome, Trainer, check_possible
from elmo_fast.pretrain.validation import validate
from elmo_fast.text import Vocabulary, replacing

CONFIG_FILE = "pretrain.yaml"
# What options.json tells of the training.
_TRAINING_OPTIONS = ("n_train_tokens", "n_epochs", "batch_size", "unroll_steps", "n_negative_samples_batch")


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind: its end, the trained model and, where held-out text was named, its perplexity."""

    outcome: Outcome
    model: LanguageModel
    vocabulary: Vocabulary
    folder: pathlib.Path
    heldout: Perplexity | None


def new_model(config: PretrainConfig, vocabulary_size: int, device: torch.device | str = "cpu") -> LanguageModel:
    """A model with weights drawn from the configuration's seed; its options say how it is to be trained."""
    optimiser, precision = config.optimiser, config.run.precision
    training: dict[str, Any] = {name: getattr(optimiser, name) for name in _TRAINING_OPTIONS}
    training |= {"all_clip_norm_val": optimiser.all_clip_norm_val, "learning_rate": optimiser.rate}
    options = options_of(config.model, vocabulary_size, sample_softmax=True, **training)
    torch.manual_seed(config.run.seed)
    precision = "float32" if precision == "tf32" else precision
    return LanguageModel(options, precision=precision, backend=config.run.backend).to(device)


def vocabulary_given(config: PretrainConfig, origin: Origin | None) -> Vocabulary | None:
    """The vocabulary that vocab_file names, that of the model a run starts from, or None: to be built of the text."""
    if config.data.vocab_file is not None:
        return Vocabulary.read(config.data.vocab_file)
    return None if origin is None else origin.vocabulary


@contextlib.contextmanager
def _settings(config: PretrainConfig, device: torch.device) -> Any:
    """Threads, and tf32 for the large products of a GPU, while open."""
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    if config.run.precision == "tf32":
        if device.type != "cuda":
            raise ElmoFastError("precision tf32 is of NVIDIA GPUs; on the CPU give float32 or bfloat16")
        torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cuda.matmul.allow_tf32 = before[1]


def pretrain(
    config: PretrainConfig,
    *,
    report: Callable[[str], None] = print,
    device: torch.device | str = "cpu",
) -> Run:
    """Trains as configured and leaves in save_dir: the model, vocab.txt, pretrain.yaml, metrics.jsonl, checkpoints.

    Goes on from the newest checkpoint where save_dir holds one. Under torchrun all processes train together.
    report: takes each line for people, in the process that leads.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = own_device(str(device))
    folder = pathlib.Path(config.run.save_dir)
    with joined(device) as peers, _settings(config, device), _locked(folder, peers):
        return _run(config, folder, peers, device, report if peers.leads else _nothing)


def _locked(folder: pathlib.Path, peers: Peers) -> contextlib.AbstractContextManager[object]:
    return FolderLock(folder) if peers.leads else contextlib.nullcontext()


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Tells what `pretrain` would do: weights, memory, tokens per step, steps. Writes and trains nothing.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = own_device(str(device))
    with joined(device) as peers:
        for line in plan(config, device, peers) if peers.leads else ():
            report(line)


def _nothing(line: str) -> None:
    """Says nothing."""


def _run(
    config: PretrainConfig,
    folder: pathlib.Path,
    peers: Peers,
    device: torch.device,
    report: Callable[[str], None],
) -> Run:
    began_before = (folder / METRICS_FILE).exists()
    if peers.leads:
        remove_unfinished(folder / CHECKPOINTS)
        remove_partial(folder)
    peers.wait()
    snapshot = snapshot_to_go_on_from(config, report)
    origin = origin_of(config, report) if snapshot is None else None
    given = vocabulary_given(config, origin)
    # The process that leads prepares the text; then the others find it prepared.
    peers.led(lambda: training_corpus(config.data, given, folder, report).fingerprint)
    corpus = training_corpus(config.data, given, folder, _nothing)
    heldout = heldout_corpus(config.data.heldout_prefix, corpus.vocabulary)
    check_possible(config, corpus)
    peers.share(config.optimiser.batch_size, config.optimiser.micro_batches)
    same_place = snapshot is not None and check_same_run(snapshot, config, corpus)
    model = new_model(config, len(corpus.vocabulary), device)
    if origin is not None:
        origin.give(model, corpus.vocabulary, config.run.seed, report)
    if snapshot is not None and not same_place:
        snapshot = dataclasses.replace(snapshot, state=None, position=_beginning(snapshot.position))
    step = None if snapshot is None and not began_before else 0 if snapshot is None else snapshot.position.step
    if peers.leads:
        write_beside(config, folder, corpus)
    with Record(folder, report, step=step, tensorboard=config.run.tensorboard, silent=not peers.leads) as record:
        trainer = Trainer(config, model, corpus, record, snapshot=snapshot, heldout=heldout, device=device, peers=peers)
        return train(trainer, folder)


def _beginning(position: Position) -> Position:
    return dataclasses.replace(position, step=0, words=0, seconds=0.0, unreported=[], unreported_words=0)


def write_beside(config: PretrainConfig, folder: pathlib.Path, corpus: Corpus) -> None:
    """Writes the configuration and the vocabulary into the run's folder."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / CONFIG_FILE) as path:
        path.write_text(yaml.safe_dump(config.flat(), sort_keys=False, default_flow_style=None), encoding="utf-8")
    corpus.vocabulary.write(folder / VOCABULARY_FILE)


def train(trainer: Trainer, folder: pathlib.Path) -> Run:
    """Trains to the end and writes the model into the run's folder itself."""
    record = trainer.record
    for line in trainer.describe():
        record.say(line)
    outcome = trainer.train()
    if trainer.peers.leads:
        save_model(folder, trainer.model, outcome.steps)
    record.say(
        f"done   {outcome.steps:,} steps, {duration(outcome.seconds)} of training in all, stopped by "
        f"{outcome.stopped_by}; model in {folder}"
    )
    return Run(outcome, trainer.model, trainer.corpus.vocabulary, folder, trainer.perplexity)
