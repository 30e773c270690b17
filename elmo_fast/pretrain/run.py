"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import math
import os
import pathlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import elmo_fast
from elmo_fast.checkpoints import CHECKPOINTS, VOCABULARY, save_folder, saved_steps
from elmo_fast.corpus import Corpus, is_prepared, open_corpus
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.fields import changes
from elmo_fast.files import folder_lock, write_text
from elmo_fast.memory import gpu_shortage_advised, size
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.op_choices import Tokenizer
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
    check_vocabulary_order,
    open_heldout_corpus,
    open_prepared_corpus,
    open_training_corpus,
    target_counts,
)
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.init_from import Origin, load_origin, load_word_vectors, text_settings
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.plan import (
    RunPlan,
    describe_corpus,
    describe_filling,
    describe_steps,
    planned_steps,
)
from elmo_fast.pretrain.processes import Processes, join_processes, local_device
from elmo_fast.pretrain.trainer import LanguageModelTrainer, train
from elmo_fast.progress import METRICS_FILE, duration
from elmo_fast.text import Vocabulary, files_matching
from elmo_fast.threads import torch_threads

CONFIG_FILE = "pretrain.yaml"
# Steps of a dry run that warm up, and steps that it measures; fewer if they take so many seconds, but one at least.
# The first steps allocate memory and fill caches, and a processor that was idle is faster for a moment.
WARM_UP_STEPS, WARM_UP_SECONDS = 3, 10.0
MEASURED_STEPS, MEASURED_SECONDS = 20, 30.0
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
        processes.check_same_options(
            {**config.flat(), "device": device.type, "the version of elmo_fast": elmo_fast.__version__}
        )
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


START = ("init_from", "prefix", "vectors_file")  # options that say which weights a run starts from


def recorded_start(folder: pathlib.Path) -> dict[str, str | None]:
    """Return START as pretrain.yaml of a run has them; {} if that cannot be read, for the run itself never reads it."""
    import yaml

    try:
        before = yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {name: before.get(name) for name in START} if isinstance(before, dict) else {}


def check_same_start(folder: pathlib.Path, requested: PretrainConfig) -> None:
    """Raise ElmoFastError where a run that resumes names other weights to start from than it was started with.

    They are not read again. A path that is gone may have moved to the new one.
    """
    before, now = recorded_start(folder), requested.flat()
    for name in before:
        then, value = before[name], now[name]
        if value is None or value == then or path_moved(then, value):
            continue
        raise ElmoFastError(
            f"{name} was {then or 'not given'}, now {value}, and the run in {folder} continues from its checkpoint, "
            f"which takes nothing from it: leave {name} as it was, or start a new run in another save_dir"
        )


def path_moved(before: str | None, now: str) -> bool:
    """Return whether `now` is the path of what was at `before`, or may be, because nothing is there any longer."""
    if before is None or not os.path.exists(now):
        return False
    return not os.path.exists(before) or os.path.samefile(before, now)


def state_to_resume(resumed: TrainingState, config: PretrainConfig, corpus: Corpus) -> TrainingState:
    """Return the state of a checkpoint, to continue at its position or, with a different text, at that text's start.

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
        return resumed
    if config.run.allow_other_corpus and config.run.resume not in ("auto", "never"):
        if at.vocabulary != corpus.vocabulary.digest:
            raise ElmoFastError(
                "allow_other_corpus takes another text in the same vocabulary, and the words to predict have changed; "
                "prepare the text with the vocabulary of the run (--vocab_file), or start a new run by --init_from"
            )
        start = dataclasses.replace(at, step=0, words=0, seconds=0.0, unreported=[], best=BestEvaluation())
        return dataclasses.replace(resumed, state=None, position=start)
    raise ElmoFastError(
        f"the checkpoint after step {at.step} was trained on another corpus or vocabulary (fingerprint "
        f"{at.fingerprint[:12]}, now {corpus.fingerprint[:12]}); to resume with this text give another "
        "save_dir, --resume CHECKPOINT and --allow_other_corpus true (same vocabulary), or --init_from CHECKPOINT "
        "(another vocabulary)"
    )


def open_corpora(
    requested: PretrainConfig,
    origin: Origin | None,
    folder: pathlib.Path,
    processes: Processes,
    report: Callable[[str], None],
) -> tuple[Corpus, Corpus | None]:
    """Return the corpus to train on and the held-out one, or None, the same in all processes.

    What the user left open is the origin's: the vocabulary, and the tokenizer.
    """
    vocabulary, tokenizer = text_settings(requested.data, origin)
    corpus = processes.run_leader_first(
        lambda leads: (
            open_training_corpus(requested.data, vocabulary, tokenizer, folder, report)
            if leads
            else open_prepared_corpus(requested.data, folder)
        )
    )
    processes.check_same(corpus.fingerprint, "the training text")
    heldout = open_heldout_corpus(requested.data.heldout_prefix, corpus)
    processes.check_same(str(heldout and heldout.fingerprint), "the held-out text")
    return corpus, heldout


def complete_config(
    requested: PretrainConfig,
    architecture: ModelConfig | None,
    tokenizer: Tokenizer | None,
    vocabulary_size: int,
    report: Callable[[str], None],
) -> PretrainConfig:
    """Return the configuration of a run, with what the user left open or does not decide; `requested` stays as it is.

    architecture: of the model that init_from names, None without one; tokenizer: of the corpus. The loss is one that
    suits the vocabulary. Whatever replaces a user's value is reported.
    """
    model, optimizer = architecture or requested.model, requested.optimizer
    if changed := [field for field, value in vars(model).items() if getattr(requested.model, field) != value]:
        replaced = f"that of {requested.run.init_from}, which replaces the configuration's {', '.join(changed)}"
        report(f"init   the architecture is {replaced}")
    loss = LOSS_CLASSES[optimizer.loss].substitute(vocabulary_size, optimizer.n_negative_samples_batch).kind.name
    if loss != optimizer.loss:
        report(
            f"loss   {loss}: the vocabulary has {vocabulary_size:,} words, fewer than the "
            f"{optimizer.n_negative_samples_batch:,} distinct ones that n_negative_samples_batch samples"
        )
    data = dataclasses.replace(requested.data, tokenizer=tokenizer)
    return PretrainConfig(model, data, dataclasses.replace(optimizer, loss=loss), requested.run)


def start_run(
    requested: PretrainConfig,
    folder: pathlib.Path,
    processes: Processes,
    device: torch.device,
    report: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> LanguageModelTrainer:
    """Return the trainer of a new or resumed run; `stack` closes its log at the end.

    requested: the configuration as the user gave it, of which `complete_config` makes that of the run.
    """
    # Where the run begins: a checkpoint of its own, a pretrained model, or neither.
    started_before = processes.run_on_leader(lambda: (folder / METRICS_FILE).exists())
    processes.run_on_leader(lambda: finish_saves(folder))
    resumed, origin = find_checkpoint_to_resume(requested, report), None
    processes.check_same(str(resumed and resumed.position.step), "the step to resume from")
    if resumed is not None:
        processes.run_on_leader(lambda: check_same_start(folder, requested))
    else:
        origin = load_origin(requested, report)
        if started_before:
            report("plan   the run in this folder has no checkpoint yet: it starts over")

    # Its text, which decides the vocabulary, and its configuration.
    corpus, heldout = open_corpora(requested, origin, folder, processes, report)
    architecture = None if origin is None else origin.architecture
    if resumed is not None and requested.run.init_from is not None:
        architecture = ModelConfig(**resumed.position.model)
    words = len(corpus.vocabulary)
    config = complete_config(requested, architecture, corpus.tokenizer, words, report)
    processes.assign_rows(config.optimizer.batch_size, config.optimizer.micro_batches)
    if resumed is None:
        check_vocabulary_order(corpus, config.optimizer.loss)
    else:
        resumed = state_to_resume(resumed, config, corpus)

    # Its model. The plan is reported before memory is taken.
    plan = RunPlan(config, words, processes, device, corpus)
    for line in [*plan.describe_model(), plan.describe_disk()]:
        report(line)
    model = make_language_model(config, words, device, target_counts(corpus))
    model.options = dataclasses.replace(model.options, vocabulary_sha256=corpus.vocabulary.digest)
    if origin is not None:
        origin.initialise(model, corpus.vocabulary, config.run.seed, report)
    elif resumed is None and config.model.input == "vectors":
        load_word_vectors(model, corpus.vocabulary, config.data, seed=config.run.seed, report=report)

    # Its folder and its log, which the leader writes.
    start = {} if resumed is None else recorded_start(folder)
    processes.run_on_leader(lambda: write_settings(folder, config, corpus.vocabulary, start))
    at: dict[str, Any] = {"step": 0 if started_before else None}
    if resumed is not None:
        position = resumed.position
        at = {"step": position.step, "unreported": len(position.unreported), "evaluated": position.best.last}
    record = processes.run_leader_first(
        lambda leads: stack.enter_context(
            RunLog(folder, report, **at, tensorboard=config.run.tensorboard, silent=not leads)
        )
    )
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

    lines = describe_corpus(corpus) + describe_filling(config, corpus)
    lines += [] if heldout is None else describe_corpus(heldout, "eval  ")
    for line in lines:
        report(line)
    progress = trainer.progress
    report(describe_steps(config, progress.total_steps, trainer.stream.steps_per_epoch, progress.step))
    return trainer


def write_settings(
    folder: pathlib.Path, config: PretrainConfig, vocabulary: Vocabulary, start: Mapping[str, str | None]
) -> None:
    """Write pretrain.yaml and vocab.txt into a run's folder.

    start: START of the run that resumes, which stays where the user has left it out.
    """
    import yaml

    options = config.flat()
    options |= {name: value for name, value in start.items() if options[name] is None}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG_FILE, yaml.safe_dump(options, sort_keys=False, default_flow_style=None))
    vocabulary.write(folder / VOCABULARY)


def dry_run(
    requested: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Report what `pretrain` would do: weights, memory, disk, steps, and hours at the speed of a few steps.

    Leaves nothing behind: the steps train a model that is then dropped, and text that is not prepared is read into a
    temporary folder. Raises ElmoFastError with every complaint about the configuration.
    """
    validate(requested)
    device = local_device(str(device))
    with join_processes(device) as processes, _settings(requested, device), contextlib.ExitStack() as stack:
        if not processes.leads:
            return
        data, origin = requested.data, load_origin(requested, report)
        vocabulary, tokenizer = text_settings(data, origin)
        folders = pathlib.Path(data.train_prefix), pathlib.Path(requested.run.save_dir) / CORPUS_FOLDER
        corpus, prepared = None, next(filter(is_prepared, folders), None)
        if prepared is not None:
            corpus = open_corpus(prepared, tokenizer)
        elif (text := sum(map(os.path.getsize, files_matching(data.train_prefix)))) <= MOST_DRY_RUN_BYTES:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-fast-"))
            corpus = open_training_corpus(data, vocabulary, tokenizer, pathlib.Path(temporary), report)
        else:
            too_long = (
                f"{data.train_prefix} has {size(text)}, more than a dry run reads: run elmo-fast prepare, and give its "
                "folder as train_prefix"
            )
            if vocabulary is None:
                raise ElmoFastError(too_long)
            report(f"plan   {too_long}")
        if corpus is not None:
            vocabulary, tokenizer = corpus.vocabulary, corpus.tokenizer
        assert vocabulary is not None
        words = len(vocabulary)
        config = complete_config(requested, None if origin is None else origin.architecture, tokenizer, words, report)
        plan = RunPlan(config, words, processes, device, corpus)
        fits = plan.fits_memory()
        for line in [*plan.describe_model(), plan.describe_disk()]:
            report(line)
        if corpus is None:
            return
        check_vocabulary_order(corpus, config.optimizer.loss)
        epoch = math.ceil(math.ceil(corpus.positions / config.optimizer.batch_size) / config.optimizer.unroll_steps)
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
    warm_up, _, _ = _timed(trainer, WARM_UP_STEPS, WARM_UP_SECONDS)
    steps, took, words = _timed(trainer, MEASURED_STEPS, MEASURED_SECONDS)
    seconds = took / steps
    limit = config.run.max_seconds
    cut = limit is not None and limit < total * seconds
    return (
        f"speed  {words / took:,.0f} tokens/s, measured here in {steps} steps after {warm_up}: {total:,} steps take "
        f"about {duration(total * seconds)}, evaluations and saves apart"
        + (f"; max_seconds ends the run after {duration(limit)}" if cut and limit is not None else "")
    )


def _timed(trainer: LanguageModelTrainer, most: int, limit: float) -> tuple[int, float, int]:
    """Take steps, `most` of them or as many as begin within `limit` seconds; return steps, seconds and words."""
    before, began, steps, took = trainer.progress.words, time.perf_counter(), 0, 0.0
    while steps == 0 or (steps < most and took < limit):
        float(trainer.step().gradient_norm)  # waits for a GPU
        steps, took = steps + 1, time.perf_counter() - began
    return steps, took, trainer.progress.words - before


@contextlib.contextmanager
def _settings(config: PretrainConfig, device: torch.device) -> Iterator[None]:
    """Set the number of threads, and tf32 for the large products of a GPU, while open."""
    before = torch.backends.cuda.matmul.allow_tf32
    if config.run.precision == "tf32":
        if device.type != "cuda":
            raise ElmoFastError(f"precision tf32 needs an NVIDIA GPU; got device {device}: give float32 or bfloat16")
        torch.backends.cuda.matmul.allow_tf32 = True
    if config.run.precision == "float16" and device.type == "cuda":
        raise ElmoFastError(f"precision float16 holds no gradients on a GPU; got device {device}: give bfloat16")
    try:
        with torch_threads(config.run.threads), gpu_shortage_advised(**config.flat()):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
