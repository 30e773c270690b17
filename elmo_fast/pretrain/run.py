"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import math
import os
import pathlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator

import torch

from elmo_fast.checkpoints import CHECKPOINTS, VOCABULARY, save_folder, saved_steps
from elmo_fast.corpus import Corpus, is_prepared, open_corpus
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.fields import changes
from elmo_fast.files import folder_lock, write_text
from elmo_fast.memory import size
from elmo_fast.pretrain.checkpoint import (
    BestEvaluation,
    TrainingState,
    finish_saves,
    identity,
    read_training_state,
)
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig, validate
from elmo_fast.pretrain.corpora import (
    CORPUS_FOLDER,
    open_heldout_corpus,
    open_prepared_corpus,
    open_training_corpus,
    target_counts,
)
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.init_from import adopt_architecture, load_origin, load_word_vectors
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.plan import (
    describe_corpus,
    describe_disk,
    describe_filling,
    describe_model,
    describe_steps,
    fits_memory,
    planned_steps,
    with_fitting_loss,
)
from elmo_fast.pretrain.processes import Processes, join_processes, local_device
from elmo_fast.pretrain.trainer import LanguageModelTrainer, train
from elmo_fast.progress import METRICS_FILE, duration
from elmo_fast.text import Vocabulary, files_matching
from elmo_fast.threads import torch_threads

CONFIG_FILE = "pretrain.yaml"
# Steps that a dry run measures, after one that warms up; fewer if they take so many seconds.
MEASURED_STEPS, MEASURED_SECONDS = 5, 30.0
# Longer text is not prepared for a dry run: that would take minutes, and the room of a temporary folder.
MOST_DRY_RUN_BYTES = 1 << 28
_WHY_STOPPED = {
    "steps": "max_steps or n_epochs is reached",
    "patience": "held-out perplexity has not improved in `patience` evaluations",
    "time": "max_seconds is reached",
    "interrupt": "a signal interrupted it",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind.

    steps: taken in all; seconds: of training, in all; stopped_by: "steps", "patience", "time" or "interrupt"; signal:
    number of the signal that interrupted it, in any of the processes, else 0; heldout: perplexity, where held-out text
    was named.
    """

    steps: int
    seconds: float
    stopped_by: str
    signal: int
    model: LanguageModel
    vocabulary: Vocabulary
    folder: pathlib.Path
    heldout: Perplexity | None


def pretrain(
    config: PretrainConfig,
    *,
    report: Callable[[str], None] = print,
    device: torch.device | str = "cpu",
) -> Run:
    """Train as configured and leave in save_dir: the model, vocab.txt, pretrain.yaml, metrics.jsonl, checkpoints.

    Resumes from the newest checkpoint of save_dir, if there is one. Under torchrun all processes train together.
    report: takes each line for people, in the process that leads.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = local_device(str(device))
    folder = pathlib.Path(config.run.save_dir)
    with join_processes(device) as processes, _settings(config, device), contextlib.ExitStack() as stack:
        processes.check_same_options({**config.flat(), "device": device.type})
        processes.run_on_leader(lambda: stack.enter_context(folder_lock(folder)))
        say = report if processes.leads else lambda line: None
        if not processes.leads:  # the leader says the same
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", UserWarning)
        trainer = start_run(config, folder, processes, device, say, stack)
        stopped_by, signal = train(trainer)
        steps, seconds, model = trainer.progress.step, trainer.progress.seconds, trainer.model
        if processes.leads:
            save_folder(folder, model.checkpoint_state(), model.options, extra={"pretraining_step": steps})
        if steps == 0 and processes.leads:
            warnings.warn(
                f"no step was taken: the model in {folder} has the weights that the run began with", stacklevel=2
            )
        say(f"done   {steps:,} steps, {duration(seconds)} in all; {_WHY_STOPPED[stopped_by]}; model in {folder}")
        return Run(steps, seconds, stopped_by, signal, model, trainer.corpus.vocabulary, folder, trainer.perplexity)


def find_checkpoint_to_resume(config: PretrainConfig, report: Callable[[str], None]) -> TrainingState | None:
    """Return the checkpoint that `resume` asks for: the newest whole one of save_dir, a named one, or none.

    A named one counts only while save_dir has no checkpoints of its own: afterwards the newest of those is used, so
    that the same command resumes the run. A damaged one is reported by name, and the one before is used.

    Raises ElmoFastError when all are damaged, the named one is, or the folder holds a run and `resume` is
    "never".
    """
    folder, resume = pathlib.Path(config.run.save_dir), config.run.resume
    saved = saved_steps(folder)
    if resume not in ("auto", "never") and not saved:
        return read_training_state(pathlib.Path(resume))
    if resume == "never":
        if saved or (folder / METRICS_FILE).exists():
            raise ElmoFastError(
                f"save_dir {folder} already holds a run; give another folder, move that one away, or resume it by "
                "--resume auto"
            )
        return None
    if saved and resume != "auto":
        report(f"resume {folder} has checkpoints of its own, which count before {resume}")
    for _, path in reversed(saved):
        try:
            return read_training_state(path)
        except CheckpointError as error:
            warnings.warn(f"{path} is not used: {error}", stacklevel=2)
    if saved:
        raise ElmoFastError(
            f"{folder / CHECKPOINTS}: wanted a checkpoint that can be used, found {len(saved)} that cannot (see above);"
            " restore one, or give another save_dir"
        )
    return None


def check_same_run(resumed: TrainingState, config: PretrainConfig, corpus: Corpus) -> bool:
    """Return True to resume at the checkpoint's position, False to start a different text from its beginning.

    Raises ElmoFastError that names what differs and has not been allowed to.
    """
    at, now = resumed.position, identity(config, corpus)
    names = ("rows", "unroll_steps", "seed", "shuffle", "optimiser", "loss")
    before, after = ({name.replace("rows", "batch_size"): run[name] for name in names} | run["model"]
                     for run in (dataclasses.asdict(at), now))  # fmt: skip
    differing = changes(before, after)
    if differing:
        raise ElmoFastError(
            f"the checkpoint after step {at.step} is of another run: {'; '.join(differing)}; give what it was, or "
            "start a new run from its weights: --init_from CHECKPOINT with another save_dir"
        )
    if at.fingerprint == corpus.fingerprint:
        return True
    if config.run.allow_other_corpus and config.run.resume not in ("auto", "never"):
        if at.vocabulary != corpus.vocabulary.digest:
            raise ElmoFastError(
                "allow_other_corpus takes another text in the same vocabulary, and the words to predict have changed; "
                "prepare the text with the vocabulary of the run (--vocab_file), or start a new run by --init_from"
            )
        return False
    raise ElmoFastError(
        f"the checkpoint after step {at.step} was trained on another corpus or vocabulary (fingerprint "
        f"{at.fingerprint[:12]}, now {corpus.fingerprint[:12]}); to resume with this text give another "
        "save_dir, --resume CHECKPOINT and --allow_other_corpus true (same vocabulary), or --init_from CHECKPOINT "
        "(another vocabulary)"
    )


def start_run(
    config: PretrainConfig,
    folder: pathlib.Path,
    processes: Processes,
    device: torch.device,
    report: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> LanguageModelTrainer:
    """Return the trainer of a new or resumed run; `stack` closes its log at the end."""
    import yaml

    started_before = processes.run_on_leader(lambda: (folder / METRICS_FILE).exists())
    processes.run_on_leader(lambda: finish_saves(folder))
    resumed = find_checkpoint_to_resume(config, report)
    processes.check_same(str(resumed and resumed.position.step), "the step to resume from")
    if resumed is None and started_before:
        report("plan   the run in this folder has no checkpoint yet: it starts over")
    if saved_steps(folder) and not (is_prepared(config.data.train_prefix) or is_prepared(folder / CORPUS_FOLDER)):
        raise ElmoFastError(
            f"the run in {folder} was started on a prepared corpus, and train_prefix {config.data.train_prefix!r} is "
            "none; name that corpus, or give another save_dir"
        )
    origin = None
    if resumed is None:
        origin = load_origin(config, report)
    elif config.run.init_from is not None:
        adopt_architecture(config, ModelConfig(**resumed.position.model), config.run.init_from, report)
    vocabulary = None if origin is None else origin.vocabulary  # None: built from the text
    if config.data.vocab_file is not None:
        vocabulary = Vocabulary.read(config.data.vocab_file)
    corpus = processes.run_leader_first(
        lambda leads: (
            open_training_corpus(config.data, vocabulary, folder, report)
            if leads
            else open_prepared_corpus(config.data, folder)
        )
    )
    processes.check_same(corpus.fingerprint, "the training text")
    config.data.tokenizer = corpus.tokenizer
    heldout = open_heldout_corpus(config.data.heldout_prefix, corpus)
    processes.check_same(str(heldout and heldout.fingerprint), "the held-out text")
    config = with_fitting_loss(config, len(corpus.vocabulary), report)
    optimizer = config.optimizer
    processes.assign_rows(optimizer.batch_size, optimizer.micro_batches)
    if resumed is not None and not check_same_run(resumed, config, corpus):
        position = dataclasses.replace(
            resumed.position, step=0, words=0, seconds=0.0, unreported=[], best=BestEvaluation()
        )
        resumed = dataclasses.replace(resumed, state=None, position=position)
    words = len(corpus.vocabulary)
    for line in describe_model(config, words, processes, device, corpus) + describe_disk(config, words, corpus):
        report(line)
    model = make_language_model(config, words, device, target_counts(corpus))
    model.options = dataclasses.replace(model.options, vocabulary_sha256=corpus.vocabulary.digest)
    if origin is not None:
        origin.initialise(model, corpus.vocabulary, config.run.seed, report)
    elif resumed is None and config.model.input == "vectors":
        assert config.data.vectors_file is not None  # validate has seen to it
        load_word_vectors(model, corpus.vocabulary, config.data.vectors_file, seed=config.run.seed, report=report)

    def write_config() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / CONFIG_FILE, yaml.safe_dump(config.flat(), sort_keys=False, default_flow_style=None))
        corpus.vocabulary.write(folder / VOCABULARY)

    processes.run_on_leader(write_config)
    step = None if resumed is None and not started_before else 0 if resumed is None else resumed.position.step
    unreported = 0 if resumed is None else len(resumed.position.unreported)
    evaluated = None if resumed is None else resumed.position.best.last
    record = processes.run_leader_first(
        lambda leads: stack.enter_context(
            RunLog(
                folder, report, step=step, unreported=unreported, evaluated=evaluated,
                tensorboard=config.run.tensorboard, silent=not leads,
            )
        )
    )  # fmt: skip
    trainer = LanguageModelTrainer(
        config, model, corpus, record, resumed=resumed, heldout=heldout, device=device, processes=processes
    )
    if origin is not None:
        origin.initialise_optimizer(model, trainer.optimizer, corpus.vocabulary, report)
    if resumed is not None or config.run.init_from is not None or config.data.vectors_file is not None:
        # Each process has read its files itself; random weights follow from the seed.
        states = (
            each for state in trainer.optimizer.state.values() for each in state.values() if torch.is_tensor(each)
        )
        processes.check_same_tensors([*model.state_dict().values(), *states], "the weights to start from")
    for line in (
        describe_corpus(corpus)
        + describe_filling(config, corpus)
        + ([] if heldout is None else describe_corpus(heldout, "eval  "))
    ):
        report(line)
    total = trainer.progress.total_steps
    report(describe_steps(config, total, trainer.stream.steps_per_epoch, trainer.progress.step))
    return trainer


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Report what `pretrain` would do: weights, memory, disk, steps, and hours at the speed of a few steps.

    Leaves nothing behind: the steps train a model that is then dropped, and text that is not prepared is read into a
    temporary folder. Raises ElmoFastError with every complaint about the
    configuration.
    """
    validate(config)
    device = local_device(str(device))
    with join_processes(device) as processes, _settings(config, device), contextlib.ExitStack() as stack:
        if not processes.leads:
            return
        data, optimizer = config.data, config.optimizer
        vocabulary = None if data.vocab_file is None else Vocabulary.read(data.vocab_file)
        folders = pathlib.Path(data.train_prefix), pathlib.Path(config.run.save_dir) / CORPUS_FOLDER
        corpus, prepared = None, next(filter(is_prepared, folders), None)
        if prepared is not None:
            corpus = open_corpus(prepared, data.tokenizer)
        elif (text := sum(map(os.path.getsize, files_matching(data.train_prefix)))) <= MOST_DRY_RUN_BYTES:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-fast-"))
            corpus = open_training_corpus(data, vocabulary, pathlib.Path(temporary), report)
        else:
            too_long = (
                f"{data.train_prefix} has {size(text)}, more than a dry run reads: run elmo-fast prepare, and give its "
                "folder as train_prefix"
            )
            if vocabulary is None:
                raise ElmoFastError(too_long)
            report(f"plan   {too_long}")
        vocabulary = vocabulary if corpus is None else corpus.vocabulary
        assert vocabulary is not None
        config = with_fitting_loss(config, len(vocabulary), report)
        fits = fits_memory(config, len(vocabulary), processes, device, corpus)
        lines = describe_model(config, len(vocabulary), processes, device, corpus)
        for line in lines + describe_disk(config, len(vocabulary), corpus):
            report(line)
        if corpus is None:
            return
        epoch = math.ceil(math.ceil(corpus.positions / optimizer.batch_size) / optimizer.unroll_steps)
        total = planned_steps(config, epoch)
        for line in [
            *describe_corpus(corpus),
            *describe_filling(config, corpus),
            describe_steps(config, total, epoch, 0),
        ]:
            report(line)
        if processes.distributed:
            report("speed  measured in one process only: leave torchrun out")
        elif not fits:
            report("speed  not measured: memory would run out")
        else:
            report(_speed(config, corpus, total, device))


def _speed(config: PretrainConfig, corpus: Corpus, total: int, device: torch.device) -> str:
    """Time a few steps of a new model; describe the time of a run at their speed."""
    model = make_language_model(config, len(corpus.vocabulary), device, target_counts(corpus))
    record = RunLog(pathlib.Path(config.run.save_dir), silent=True)
    trainer = LanguageModelTrainer(config, model, corpus, record, device=device)
    ends: list[float] = []
    while len(ends) <= MEASURED_STEPS and (len(ends) < 2 or ends[-1] - ends[0] < MEASURED_SECONDS):
        float(trainer.step().gradient_norm)  # waits for a GPU
        ends.append(time.perf_counter())
    seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    tokens = config.optimizer.batch_size * config.optimizer.unroll_steps / seconds
    limit = config.run.max_seconds
    cut = limit is not None and limit < total * seconds
    return (
        f"speed  {tokens:,.0f} tokens/s, measured here in {len(ends) - 1} steps after the first: {total:,} steps take "
        f"about {duration(total * seconds)}, evaluations and saves apart"
        + (f"; max_seconds ends the run after {duration(limit)}" if cut and limit is not None else "")
    )


@contextlib.contextmanager
def _settings(config: PretrainConfig, device: torch.device) -> Iterator[None]:
    """Set the number of threads, and tf32 for the large products of a GPU, while open."""
    before = torch.backends.cuda.matmul.allow_tf32
    if config.run.precision == "tf32":
        if device.type != "cuda":
            raise ElmoFastError(f"precision tf32 needs an NVIDIA GPU; got device {device}: give float32 or bfloat16")
        torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with torch_threads(config.run.threads):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
