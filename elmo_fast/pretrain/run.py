"""A pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Callable, Iterator

import torch
import yaml

import elmo_fast
from elmo_fast._io.atomic_file import write_text
from elmo_fast._io.fields import changes
from elmo_fast._io.locks import folder_lock
from elmo_fast._runtime.progress import METRICS_FILE, duration
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.checkpoints import CHECKPOINTS, VOCABULARY, save_folder, saved_steps
from elmo_fast.corpus import Corpus, open_corpus
from elmo_fast.corpus.encoding import warn_of_unknown
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.modules.losses import fitting_loss
from elmo_fast.pretrain.checkpoint import (
    FIXED,
    BestEvaluation,
    TrainingState,
    finish_saves,
    identity,
    read_training_state,
)
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig, validate
from elmo_fast.pretrain.corpora import (
    check_vocabulary_order,
    open_heldout_corpus,
    open_training_corpus,
    prepared_folder,
    target_counts,
)
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.init_from import Origin, load_origin, load_word_vectors
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.log import OnMetrics, RunLog
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.model_card import CARD, model_card, write_card
from elmo_fast.pretrain.processes import Processes, join_processes, local_device
from elmo_fast.pretrain.trainer import Trainer
from elmo_fast.text import Vocabulary

CONFIG_FILE = "pretrain.yaml"
_WHY_STOPPED = {
    "steps": "max_steps or n_epochs is reached",
    "patience": "held-out perplexity has not improved in `patience` evaluations",
    "time": "max_seconds is reached",
    "interrupt": "a signal interrupted it",
}


@dataclasses.dataclass(frozen=True)
class RunResult:
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
    on_metrics: OnMetrics | None = None,
    device: torch.device | str = "cpu",
) -> RunResult:
    """Train as configured and leave in save_dir: the model, README.md on it, vocab.txt, metrics.jsonl, checkpoints.

    Resumes from the newest checkpoint of save_dir, if there is one. Under torchrun all processes train together.
    report: takes each line for people, in the process that leads; on_metrics: called there with the step and the
    figures ("train/loss", "heldout/perplexity", ...) of each row of metrics.jsonl and each evaluation. What it raises
    ends the run, which can be resumed.

    Raises ElmoFastError with every complaint about the configuration.
    """
    with Run.begin(config, report, device) as run:
        trainer = run.build(*run.open_text(), on_metrics)
        stopped_by, signal = trainer.train()
        return run.finish(trainer, stopped_by, signal)


@dataclasses.dataclass
class Run:
    """A run in its folder, which is locked: where it starts or resumes, its text, its trainer, its result.

    config: as the user gave it; `open_text` completes it, and everything after only reads it. device: of this process;
    processes: that train together; say: reports a line, in the process that leads; resumed: the checkpoint that it
    resumes from; origin: the model whose weights it starts from. `stack` is closed at the end of the run.
    """

    config: PretrainConfig
    processes: Processes
    device: torch.device
    say: Callable[[str], None]
    stack: contextlib.ExitStack
    folder: pathlib.Path
    resumed: TrainingState | None
    origin: Origin | None

    @classmethod
    @contextlib.contextmanager
    def begin(
        cls, config: PretrainConfig, report: Callable[[str], None], device: torch.device | str
    ) -> Iterator["Run"]:
        """Join the processes, lock the folder, and yield the run, which is as it was left or new."""
        validate(config)
        device, folder = local_device(str(device)), pathlib.Path(config.run.save_dir)
        with join_processes(device) as processes, _settings(config, device), contextlib.ExitStack() as stack:
            processes.check_same(
                config.flat() | {"device": device.type, "the version of elmo_fast": elmo_fast.__version__}
            )
            processes.run_on_leader(lambda: stack.enter_context(folder_lock(folder)))
            if not processes.leads:  # the leader says the same
                stack.enter_context(warnings.catch_warnings(action="ignore", category=UserWarning))
            say = report if processes.leads else lambda line: None
            processes.run_on_leader(lambda: finish_saves(folder))
            resumed = find_checkpoint_to_resume(folder, config.run.resume, say)
            processes.check_same({"the step to resume from": resumed and resumed.position.step})
            if resumed is None and (folder / METRICS_FILE).exists():
                say("plan   the run in this folder has no checkpoint yet: it starts over")
            elif resumed and (config.run.init_from is not None or config.data.vectors_file is not None):
                say("init   init_from and vectors_file are not read again: the run continues from its checkpoint")
            origin = None if resumed else load_origin(config)
            yield cls(config, processes, device, say, stack, folder, resumed, origin)

    def open_text(self) -> tuple[Corpus, Corpus | None]:
        """Open the training and the held-out text, prepare it if need be, and complete the configuration by it.

        What the user left open is the origin's: the vocabulary, and the tokenizer. All processes get the same text.
        """
        data, processes, origin = self.config.data, self.processes, self.origin
        vocabulary, tokenizer = (None, None) if origin is None else (origin.vocabulary, origin.options.tokenizer)
        if data.vocab_file is not None:
            vocabulary = Vocabulary.read(data.vocab_file)
        corpus = processes.run_leader_first(
            lambda leads: (
                open_training_corpus(data, vocabulary, data.tokenizer or tokenizer, self.folder, self.say)
                if leads
                else open_corpus(prepared_folder(data, self.folder))
            )
        )
        heldout = open_heldout_corpus(data, corpus, self.folder, self.say)
        texts = {"the training text": corpus.fingerprint, "the held-out text": heldout and heldout.fingerprint}
        processes.check_same(texts)
        warn_of_unknown(corpus)
        if heldout is not None:
            warn_of_unknown(heldout, "held-out text")
        self.config = self._complete_config(corpus)
        if self.resumed is None:
            optimizer = self.config.optimizer
            check_vocabulary_order(corpus, optimizer.loss)
            for hint in corpus.hints:
                self.say(hint)
            rows, places = optimizer.batch_size, optimizer.batch_size * optimizer.unroll_steps
            if corpus.positions < places:
                self.say(
                    f"HINT   the text fills {corpus.positions:,} of a step's {places:,} places: its {rows:,} rows have "
                    f"at most {-(-corpus.positions // rows):,} words, and the model learns no longer context; lower "
                    "batch_size"
                )
        else:
            self.resumed = state_to_resume(self.resumed, self.config, corpus)
        return corpus, heldout

    def _complete_config(self, corpus: Corpus) -> PretrainConfig:
        """Return the configuration with what the user left open or does not decide; whatever replaces his is reported.

        The architecture is that of the model that init_from names, the tokenizer the corpus's, the loss one that suits
        the vocabulary.
        """
        config, optimizer, words = self.config, self.config.optimizer, len(corpus.vocabulary)
        model = config.model
        if self.origin is not None:
            model = self.origin.architecture
            if changed := [name for name, value in vars(model).items() if getattr(config.model, name) != value]:
                replaced = f"that of {config.run.init_from}, which replaces the configuration's {', '.join(changed)}"
                self.say(f"init   the architecture is {replaced}")
        elif self.resumed is not None and config.run.init_from is not None:
            model = ModelConfig(**self.resumed.position.model)
        loss = fitting_loss(optimizer.loss, words, optimizer.n_negative_samples_batch)
        if loss != optimizer.loss:
            self.say(
                f"loss   {loss}: the vocabulary has {words:,} words, fewer than the "
                f"{optimizer.n_negative_samples_batch:,} distinct ones that n_negative_samples_batch samples"
            )
        data, run = dataclasses.replace(config.data, tokenizer=corpus.tokenizer), config.run
        if self.resumed is not None and run.init_from is None:  # which the command that began the run may have named
            run = dataclasses.replace(run, init_from=self.processes.run_on_leader(self._saved_origin))
        return PretrainConfig(model, data, dataclasses.replace(optimizer, loss=loss), run)

    def _saved_origin(self) -> str | None:
        file = self.folder / CONFIG_FILE
        try:
            values = yaml.safe_load(file.read_bytes()) if file.exists() else {}
            origin: str | None = values.get("init_from")
        except (yaml.YAMLError, AttributeError) as error:
            raise ElmoFastError(
                f"{file}: not the YAML that this run wrote, or damaged; restore or delete it: it is written again "
                f"({' '.join(str(error).split())})"
            ) from error
        return origin

    def build(self, corpus: Corpus, heldout: Corpus | None, on_metrics: OnMetrics | None = None) -> Trainer:
        """Return the trainer of the model, new or resumed, with pretrain.yaml and the log in the folder."""
        config, vocabulary, resumed, processes = self.config, corpus.vocabulary, self.resumed, self.processes
        processes.assign_rows(config.optimizer.batch_size, config.optimizer.micro_batches)  # before memory is taken
        model = make_language_model(config, len(vocabulary), self.device, target_counts(corpus))
        model.options = dataclasses.replace(model.options, vocabulary_sha256=vocabulary.digest)
        if self.origin is not None:
            self.origin.initialise(model, vocabulary, config.run.seed, self.say)
        elif resumed is None and config.data.vectors_file is not None:
            load_word_vectors(model, vocabulary, config.data.vectors_file, seed=config.run.seed, report=self.say)

        settings = yaml.safe_dump(config.flat(), sort_keys=False, default_flow_style=None)
        processes.run_on_leader(lambda: write_text(self.folder / CONFIG_FILE, settings))
        processes.run_on_leader(lambda: vocabulary.write(self.folder / VOCABULARY))
        log = functools.partial(RunLog, tensorboard=config.run.tensorboard, on_metrics=on_metrics)
        position = None if resumed is None else resumed.position
        record = processes.run_leader_first(
            lambda leads: self.stack.enter_context(log(self.folder, self.say, position, writes=leads))
        )
        trainer = Trainer(config, model, corpus, record, resumed=resumed, heldout=heldout, processes=processes)
        if self.origin is not None:
            self.origin.initialise_optimizer(model, trainer.optimizer, vocabulary, self.say)
        if resumed is not None or self.origin is not None or config.data.vectors_file is not None:
            # Each process has read its files itself; random weights follow from the seed.
            processes.check_same({"the weights to start from": trainer.digest()} if processes.distributed else {})
        self.say(trainer.summary())
        return trainer

    def finish(self, trainer: Trainer, stopped_by: str, signal: int) -> RunResult:
        """Write the model into the folder; return the result."""
        steps, seconds, model = trainer.progress.step, trainer.progress.seconds, trainer.model
        if self.processes.leads:
            save_folder(self.folder, model.checkpoint_state(), model.options, extra={"pretraining_step": steps})
            self._write_card(trainer)
            if not steps:
                why = "has the weights that the run began with"
                warnings.warn(f"no step was taken: the model in {self.folder} {why}", stacklevel=3)
        why = f"{_WHY_STOPPED[stopped_by]}; model in {self.folder}"
        self.say(f"done   {steps:,} steps, {duration(seconds)} in all; {why}")
        vocabulary, heldout = trainer.corpus.vocabulary, trainer.perplexity
        return RunResult(steps, seconds, stopped_by, signal, model, vocabulary, self.folder, heldout)

    def _write_card(self, trainer: Trainer) -> None:
        """Write README.md on the model, unless the user has written or edited it."""
        data, optimizer, corpus, heldout = self.config.data, self.config.optimizer, trainer.corpus, trainer.heldout
        size, unknown = len(corpus.vocabulary), corpus.unknown / corpus.tokens
        text = {
            "text": f"{pathlib.Path(data.train_prefix).name}: {corpus.tokens:,} words, {corpus.sentences:,} sentences",
            "vocabulary": f"{size:,} words; {unknown:.2%} of the text is outside and predicted as <UNK>",
            "tokenizer": corpus.tokenizer or "whitespace",
        }
        if self.config.run.init_from is not None:
            frozen = "" if self.config.run.train_bilm else ", whose biLM stays as it is: only the softmax is trained"
            text["started from"] = f"{pathlib.Path(self.config.run.init_from).resolve().name}{frozen}"
        if heldout is not None:
            name = pathlib.Path(data.heldout_prefix or f"{data.heldout_share} of the lines").name
            text["held-out text"] = f"{name}: {heldout.tokens:,} words, {heldout.sentences:,} sentences"
        card = model_card(
            self.folder.resolve().name,
            trainer.model.checkpoint_state(),
            trainer.model.options,
            read_metrics(self.folder).until(trainer.progress.step),
            text=text,
            training={"optimizer": f"{optimizer.optimiser}, learning rate {optimizer.rate:g}"},
        )
        if not write_card(self.folder, card):
            self.say(f"card   {self.folder / CARD} is not as it was written: it stays, without this run's figures")


def find_checkpoint_to_resume(folder: pathlib.Path, resume: str, report: Callable[[str], None]) -> TrainingState | None:
    """Return the checkpoint that `resume` asks for: the newest whole one of the folder, a named one, or none.

    A named one counts only while the folder has no checkpoints of its own: afterwards the newest of those is used, so
    that the same command resumes the run. A damaged one is reported by name, and the one before is used.

    Raises ElmoFastError when all are damaged, the named one is, or the folder holds a run and `resume` is
    "never".
    """
    saved = saved_steps(folder)
    if resume == "never":
        if saved or (folder / METRICS_FILE).exists():
            raise ElmoFastError(
                f"save_dir {folder} already holds a run; give another folder, move that one away, or resume it by "
                "--resume auto"
            )
        return None
    if resume != "auto":
        if not saved:
            return read_training_state(pathlib.Path(resume))
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


def state_to_resume(resumed: TrainingState, config: PretrainConfig, corpus: Corpus) -> TrainingState:
    """Return the state of a checkpoint, to continue at its position or, with a different text, at that text's start.

    Raises ElmoFastError that names what differs and has not been allowed to.
    """
    at, now = resumed.position, identity(config, corpus)
    before, after = ({"batch_size": run["rows"]} | {name: run[name] for name in FIXED} | run["model"]
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
        with torch_threads(config.run.threads):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
