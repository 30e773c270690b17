"""The plan of a run: its size, memory and steps, reported at its start and by --dry_run."""

import dataclasses
import functools
import math
import pathlib
import warnings

import numpy as np
import torch

from elmo_fast import ops
from elmo_fast.checkpoints import state_shapes
from elmo_fast.corpus import Corpus, is_prepared
from elmo_fast.corpus.encoding import warn_of_unknown
from elmo_fast.corpus.streams import SLAB
from elmo_fast.memory import available, resident, size, stored_bytes
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.op_choices import LOSS_KINDS
from elmo_fast.ops._dispatch import made_for, suppress_warnings
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.corpora import corpus_bytes, free_bytes, prepared_bytes
from elmo_fast.pretrain.evaluate import EVALUATED_AT_ONCE, ROWS, STEPS
from elmo_fast.pretrain.language_model import options_of
from elmo_fast.pretrain.processes import Processes
from elmo_fast.progress import duration
from elmo_fast.threads import unhindered_threads

# With fewer rows on a GPU a step's time hardly depends on their number; bilm-tf's default is 128 on each.
FEW_ROWS = 64
# Bytes of modules and of threads' buffers that come with the first step, as measured.
BUFFERS = 32 << 20
# Of held-out text, in a run whose configuration does not say after how many steps; and, where time decides, how many
# times as long as an evaluation training goes on before the next one.
EVALUATIONS, TRAINED_PER_EVALUATED = 10, 4


def planned_steps(config: PretrainConfig, steps_per_epoch: int) -> int:
    """Return the number of steps of a run that no clock stops: n_epochs passes, or max_steps when that is less.

    A pass is every position of the text or, where n_train_tokens is given, that number of words, as in bilm-tf.
    """
    optimizer = config.optimizer
    if optimizer.n_train_tokens is not None:
        steps_per_epoch = max(1, optimizer.n_train_tokens // (optimizer.batch_size * optimizer.unroll_steps))
    steps = optimizer.n_epochs * steps_per_epoch
    return steps if config.run.max_steps is None else min(steps, config.run.max_steps)


def heldout_interval(config: PretrainConfig, total_steps: int) -> int:
    """Return the steps between evaluations of held-out text: as configured, or about a tenth of the run.

    Then it is never less than from one report to the next.
    """
    run = config.run
    return run.heldout_interval or max(run.log_interval, math.ceil(total_steps / EVALUATIONS))


def heldout_seconds(config: PretrainConfig) -> float | None:
    """Return the seconds between evaluations of held-out text: a tenth of max_seconds; None if steps alone decide."""
    run = config.run
    if config.data.heldout_prefix is None or run.heldout_interval is not None or run.max_seconds is None:
        return None
    return run.max_seconds / EVALUATIONS


def distinct_words(corpus: Corpus, positions: int) -> int:
    """Return how many distinct words a batch of so many positions is expected to have, read in both directions."""
    return math.ceil(-np.expm1(-2 * positions / max(corpus.tokens, 1) * corpus.counts).sum()) + 2


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """What a run takes; to be described before the model is created.

    config: complete; words: V; processes: that train together; device: of this one; corpus: the text; None: not
    prepared yet, so that its size is an estimate.
    """

    config: PretrainConfig
    words: int
    processes: Processes
    device: torch.device
    corpus: Corpus | None = None

    @functools.cached_property
    def weights(self) -> tuple[int, int]:
        """Weights of the biLM, and of the loss's table."""
        model = self.config.model
        shapes = state_shapes(options_of(model, self.words), present=())
        bilm = sum(math.prod(side or 0 for side in shape) for shape in shapes.values())
        return bilm, LOSS_KINDS[self.config.optimizer.loss].rows(self.words) * (model.projection_dim + 1)

    @property
    def rows(self) -> int:
        """Rows of text in each process."""
        return self.processes.assign_rows(self.config.optimizer.batch_size, self.config.optimizer.micro_batches)[1]

    @property
    def sums(self) -> int:
        """Numbers that the optimizer keeps per weight."""
        return 1 if self.config.optimizer.optimiser == "adagrad" else 2

    def memory(self) -> dict[str, int]:
        """Return an estimate of the bytes that a process needs, by purpose.

        The activations are what the LSTM keeps for its backward pass (gates, cells, inputs and outputs of both
        directions), and the gradients of a layer's gates and cells. For the characters of each distinct word, what the
        convolutions and highways keep, and its gradients, count as 12 numbers per filter. An epoch has an order of
        sentences (16 bytes each), a slab of batches, and the characters of all distinct words.
        """
        model, optimizer = self.config.model, self.config.optimizer
        bilm, softmax = self.weights
        at_once = self.rows // optimizer.micro_batches * optimizer.unroll_steps  # positions of a micro-batch
        positions = optimizer.micro_batches * at_once
        used = LOSS_CLASSES[optimizer.loss].max_rows_used(self.words, optimizer.n_negative_samples_batch, positions)
        touched = softmax if self.sums == 2 else used * (model.projection_dim + 1)
        table, dense, trained = (self.words + 1) * model.projection_dim, bilm, bilm
        if model.input == "vectors" and not model.train_vectors:
            dense = trained = bilm - table
        elif model.input != "characters" and self.sums == 1:
            dense = bilm - table + min(table, 2 * positions * model.projection_dim)
        per_position = 2 * model.n_layers * (5 * model.dim + 3 * model.projection_dim) + 2 * 5 * model.dim
        width = 4 if self.config.run.precision in ("float32", "tf32") else 3  # bytes: 16-bit operands, float32 cells
        needed = {
            "weights": 4 * (bilm + softmax),
            "optimizer": 4 * self.sums * (trained + softmax),
            "gradients": 4 * (dense + touched),
            "activations": width * at_once * per_position,
        }
        if model.input == "characters":
            distinct = at_once if self.corpus is None else distinct_words(self.corpus, at_once)
            needed["characters"] = 4 * distinct * 12 * sum(number for _, number in model.filters)
        if self.corpus is not None:
            spelled = model.max_characters_per_token if model.input == "characters" else 0
            numbers = min(SLAB, 2 * self.corpus.positions)
            needed["batches"] = 16 * self.corpus.sentences + 24 * numbers + spelled * len(self.corpus.types)
        if self.config.data.heldout_prefix is not None:
            needed["evaluation"] = min(EVALUATED_AT_ONCE, 4 * ROWS * STEPS * self.words)
        if self.device.type == "cpu":
            needed["buffers"] = BUFFERS
            needed["packed copies"] = 0 if self.config.run.backend == "reference" else 2 * 4 * bilm
            torch.optim.SGD(
                [torch.zeros(1, device="cpu")]
            )  # with its first optimizer torch loads its compiler, some 80 MB
        return needed

    @property
    def text_bytes(self) -> int:
        """Bytes of the prepared text, an estimate before it is: files that are mapped, and that the system may drop."""
        if self.corpus is None:
            return prepared_bytes(self.config.data.train_prefix)
        return corpus_bytes(self.corpus)

    def fits_memory(self) -> bool:
        """Return whether the memory that is left suffices, as far as is known: that of a GPU is not.

        The text need not: what is dropped of it is read again.
        """
        left = available() if self.device.type == "cpu" else None
        return left is None or sum(self.memory().values()) <= left

    def describe_model(self) -> list[str]:
        """Return the model, its memory and a step, in lines of text; warns where memory will run out."""
        config, optimizer, processes, device = self.config, self.config.optimizer, self.processes, self.device
        (bilm, softmax), rows, memory = self.weights, self.rows, self.memory()
        on_cpu = device.type == "cpu"
        if on_cpu and (used := resident()):
            memory = {"Python": used, **memory, "the text, which the system may drop": self.text_bytes}
        purposes = ", ".join(f"{name} {size(each)}" for name, each in memory.items())
        shared = f" | {rows} rows in each of {processes.size} processes" if processes.distributed else ""
        lines = [
            f"model  reads {config.model.input} | {bilm / 1e6:.2f}M weights in the biLM, {softmax / 1e6:.2f}M in the "
            f"softmax over {self.words:,} words | {config.run.precision} on {device}",
            f"memory about {size(sum(memory.values()))} per process: {purposes}",
        ]
        if not self.fits_memory():
            warnings.warn(
                f"{size(available() or 0)} are left to this process: memory will run out; lower batch_size, raise "
                "micro_batches, or take a smaller model or vocabulary",
                stacklevel=2,
            )
        if on_cpu and config.run.threads is None:
            # Reported, not chosen: the other programs may end long before the run does.
            threads = torch.get_num_threads()
            free, why = unhindered_threads(threads)
            if free < threads:
                lines.append(f"SLOWER {threads} threads wait for each other: {why}; --threads {free} may be faster")
        if device.type == "cuda" and rows < FEW_ROWS:
            everyone = f" (batch_size counts those of all {processes.size} processes)" if processes.distributed else ""
            lines.append(
                f"SLOWER {rows} rows leave most of a GPU idle{everyone}: a new run with --batch_size "
                f"{FEW_ROWS * processes.size} or more processes more tokens in the same time"
            )
        reset = f" | a row is reset with probability {optimizer.state_reset:g} per step"
        return [
            *lines,
            f"batch  {optimizer.batch_size} rows x {optimizer.unroll_steps} = "
            f"{optimizer.batch_size * optimizer.unroll_steps:,} tokens, each read in both directions{shared} | "
            f"{optimizer.optimiser}, learning rate {optimizer.rate:g}, {optimizer.schedule}"
            + (reset if optimizer.state_reset else ""),
            self._describe_loss(),
            *describe_backends(config, device),
        ]

    def _describe_loss(self) -> str:
        """Return the loss, and the FLOP per token of a step in the LSTM's products and in the loss's."""
        model, optimizer = self.config.model, self.config.optimizer
        loss, samples = LOSS_CLASSES[optimizer.loss], optimizer.n_negative_samples_batch
        # Two directions; 2 FLOP a product forward, and twice that backward.
        lstm = 12.0 * model.n_layers * 9 * model.dim * model.projection_dim
        products = 12.0 * loss.products(self.words, samples) * model.projection_dim
        return (
            f"loss   {loss.describe(self.words, samples, optimizer.negatives)} | about {lstm / 1e6:.2f} MFLOP per "
            f"token in the LSTM, {products / 1e6:.2f} in the loss"
        )

    def describe_disk(self) -> str:
        """Return the room that the run's files take, in a line of text; warns where there is less."""
        config, model, run = self.config, self.config.model, self.config.run
        states = 2 * model.n_layers * config.optimizer.batch_size * (model.dim + model.projection_dim)
        checkpoint = 4 * ((1 + self.sums) * sum(self.weights) + states)
        # While the newest is written, none has been removed; the model lies in the folder itself, too.
        needed = (run.keep_checkpoints + 1 + run.keep_best) * checkpoint + 4 * sum(self.weights)
        folder, prepared = pathlib.Path(run.save_dir), 0
        if not is_prepared(config.data.train_prefix):
            prepared = self.text_bytes
        needed += prepared
        of_text = f", the prepared text {size(prepared)}" if prepared else ""
        free, used = free_bytes(folder), stored_bytes(folder)
        if needed > free + used:
            warnings.warn(
                "the disk will be full: lower keep_checkpoints, or give a save_dir on another disk", stacklevel=2
            )
        return (
            f"disk   about {size(needed)} in save_dir: checkpoints of {size(checkpoint)} each{of_text}; {size(free)} "
            "are free"
        )


def describe_corpus(corpus: Corpus, what: str = "data  ") -> list[str]:
    """Return a text, in lines of text; warns where the vocabulary does not fit it."""
    unknown = corpus.unknown / max(corpus.tokens, 1)
    warn_of_unknown(corpus, "held-out text" if what.startswith("eval") else "text")
    lines = [
        f"{what} {corpus.tokens:,} words, {corpus.sentences:,} sentences, {len(corpus.types):,} distinct words, "
        f"{len(corpus.vocabulary):,} to predict, {unknown:.1%} of the text is <UNK> | fingerprint "
        f"{corpus.fingerprint[:12]}"
    ]
    return lines + corpus.hints


def describe_filling(config: PretrainConfig, corpus: Corpus) -> list[str]:
    """Return a hint where the text is shorter than a step, whose rows then end in the middle of it."""
    rows, positions = config.optimizer.batch_size, config.optimizer.batch_size * config.optimizer.unroll_steps
    if corpus.positions >= positions:
        return []
    return [
        f"HINT   the text fills {corpus.positions:,} of a step's {positions:,} places: its {rows:,} rows have at most "
        f"{math.ceil(corpus.positions / rows):,} words, and the model learns no longer context; lower batch_size"
    ]


def describe_steps(config: PretrainConfig, total: int, steps_per_epoch: int, done: int) -> str:
    """Return the steps, checkpoints and evaluations of a run, in a line of text."""
    limit, seconds = config.run.max_seconds, heldout_seconds(config)
    return (
        f"plan   {total:,} steps, {steps_per_epoch:,} per epoch"
        + (f", or {duration(limit)}" if limit else "")
        + (f" | resumes after step {done:,}" if done else "")
        + (": nothing is left to do; raise max_steps or n_epochs to train on" if done >= total else "")
        + (
            f" | a checkpoint every {config.run.checkpoint_interval:,} steps"
            if config.run.checkpoint_interval < total
            else " | a checkpoint at the end only: if the run is killed before, it starts over"
        )
        + (
            f" | held-out text every {heldout_interval(config, total):,} steps"
            + (f" or {duration(seconds)}, whichever comes first," if seconds else "")
            + " and at the end"
            if config.data.heldout_prefix is not None
            else ""
        )
        + (f", at most {config.run.patience:,} times without a better perplexity" if config.run.patience else "")
        + (" | the best checkpoint is kept" if config.run.keep_best else "")
    )


# The ops of the character encoder.
_CHARACTERS = ("unique_rows", "char_cnn", "highway")


def describe_backends(config: PretrainConfig, device: torch.device) -> list[str]:
    """Return a line on the ops' backends, one per reason why a faster one is not used, one on a slow precision."""
    precision, backend, optimizer = config.run.precision, config.run.backend, config.optimizer
    operands = "float32" if precision == "tf32" else precision
    served: dict[str, list[str]] = {}
    slower: dict[str, list[str]] = {}
    called = [*(_CHARACTERS if config.model.input == "characters" else ()), "projected_lstm"]
    called += [*LOSS_CLASSES[optimizer.loss].ops_used, *(["adagrad"] if optimizer.optimiser == "adagrad" else [])]
    for op in called:
        name = ops.backend_for(op, backend)
        if name == "auto":
            choice = ops.explain(op, device, torch.float32, operands)
            name = choice.backend
            suppress_warnings(op, choice, device, operands)
            for faster, why in choice.refusals.items():
                if made_for(faster, device):
                    slower.setdefault(f"{name}, not {faster}: {why}", []).append(op)
        served.setdefault(name, []).append(op)
    lines = [f"SLOWER {', '.join(each)}: {why}" for why, each in slower.items()]
    if operands != "float32" and device.type == "cpu":
        if backend == "reference":
            lines.append(f"SLOWER {operands}: the reference rounds operands, then multiplies them in float32")
        elif not ops.is_faster_on_cpu(operands):
            lines.append(f"SLOWER {operands}: {ops.products_on_cpu(operands)}")
    if device.type == "cuda" and optimizer.optimiser != "adagrad":
        lines.append(
            f"SLOWER {optimizer.optimiser}: in each step the host reads the gradient's norm and launches the update by "
            "itself; adagrad's is in the step's CUDA graph"
        )
    if precision == "float32" and device.type == "cuda":
        lines.append(
            "SLOWER float32: products have no tensor cores, or take three on them for one; --precision bfloat16 "
            "takes one and reads 2 bytes a number in place of 4"
        )
    return ["ops    " + "; ".join(f"{name}: {', '.join(each)}" for name, each in served.items()), *lines]
