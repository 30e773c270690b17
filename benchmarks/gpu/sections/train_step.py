"""One step of pretraining, original architecture, batch 128 x 20, 8192 negatives of 793,471 words: positions/s.

The rival is plain torch under autocast: AllenNLP's encoder and loop, the same sampled loss with sparse embeddings, the
same clip, torch's own AdaGrad (dense but for the table, whose rows it updates as ours does).
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu import models, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import OURS, What
from benchmarks.gpu.session import Session
from benchmarks.trainers import reading
from elmo_fast import ops
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad, clip_by_global_norm
from elmo_fast.pretrain.step.training_step import Step
from elmo_fast.tuning import rivals

EAGER = "eager, autocast"
STEPS = 20


def run(session: Session) -> None:
    """Batches of 128 and of 1024 rows."""
    (precision,) = session.precisions("bfloat16")
    words, samples, steps = (100, 10, 3) if session.quick else (793_471, 8192, STEPS)
    session.serving(precision, "char_cnn", "highway", "projected_lstm", "sampled_softmax")
    for rows in (2,) if session.quick else (128, 1024):
        if session.late(f"train step, {rows} x {STEPS}", 20.0 if session.clock.cuda else 0.0):
            return
        problem = Problem(session, rows, steps, words, samples)
        what = What(
            f"train step, {rows} x {steps}, {samples} of {words:,} words, {precision}",
            precision,
            "positions/s",
            rows * steps,
            problem.work(),
            graph=False,  # a step hands its losses to the host
        )
        sides = {OURS: lambda: problem.ours(precision), EAGER: lambda: problem.eager(precision)}  # noqa: B023
        compare(session, what, sides, problem.truth, tolerance=0.02)


class Problem:
    """Both streams of running text, what is predicted, and the weights of a fixed seed; a word's id is its rank."""

    def __init__(self, session: Session, rows: int, steps: int, words: int, samples: int) -> None:
        self.session, self.rows, self.steps, self.words, self.samples = session, rows, steps, words, samples
        running, source = session.sentences()
        session.note("text", source)
        count = rows * steps
        running = [running[i % len(running)] for i in range(2 * count)]
        ranks = {word: i % words for i, word in enumerate(dict.fromkeys(running))}
        self.distinct = len(ranks)
        self.batch = reading(running[:count], running[count:], ranks, rows, session.device)

    def work(self) -> roofline.Work:
        """What a step must cost; each distinct word goes through the encoder once."""
        cells, size, used = (16, 8, self.samples) if self.session.quick else (4096, 512, 2 * self.samples)
        return roofline.train_step(self.rows, self.steps, self.distinct, cells, size, 2, self.samples, used)

    def model(self, **how: str) -> LanguageModel:
        """The weights, made where they stay: a table of 793,471 words takes seconds on a CPU."""
        torch.manual_seed(0)
        with torch.device(self.session.device):
            made = LanguageModel(models.options(self.session, self.words, self.samples), **how)
        models.spread(made.bilm._token_embedder)
        return made.to(self.session.device)

    def side(self, step: Callable[[int], tuple[float, float]]) -> Side:
        """step(number of steps before it) gives the losses; checked by those of the first step."""
        taken = itertools.count()

        def call() -> Tensor:
            return torch.tensor(step(next(taken)), device=self.session.device)

        return Side(call, lambda: {"losses": call()})

    def ours(self, precision: str) -> Side:
        """pretrain.step.Step."""
        network = self.model(precision=precision)
        update, state = Step(network, AdaGrad(network.parameters()), clip_norm=10.0), None

        def step(taken: int) -> tuple[float, float]:
            nonlocal state
            found = update(self.batch, state, taken)
            state = found.state
            return found.forward, found.backward

        return self.side(step)

    def eager(self, precision: str) -> Side:
        """Plain torch under autocast."""
        network = self.model(backend="reference")
        dense = [p for name, p in network.named_parameters() if name != "loss.softmax_w"]
        how = {"lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}
        optimizers = [
            torch.optim.Adagrad(dense, foreach=True, **how),
            torch.optim.Adagrad([network.softmax_weight], **how),
        ]

        def step(taken: int) -> tuple[float, float]:
            network.zero_grad(set_to_none=True)
            forward, backward = self.losses(network, taken, getattr(torch, precision))
            (0.5 * (forward + backward) * self.steps).backward()
            clip_by_global_norm(network.parameters(), 10.0)
            for optimizer in optimizers:
                optimizer.step()
            return forward.item(), backward.item()

        return self.side(step)

    def truth(self) -> dict[str, Tensor]:
        """The losses of the first step in float64."""
        with torch.no_grad():
            return {"losses": torch.stack(self.losses(self.model(backend="reference").double(), 0, torch.float64))}

    def losses(self, network: LanguageModel, draw: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Mean loss per direction in plain torch; products in `dtype` by autocast, or all of it in float64."""
        exact, batch = dtype == torch.float64, self.batch
        tokens = rivals.EncoderWeights.of(network.bilm._token_embedder)
        lstm = network.bilm._elmo_lstm
        with torch.autocast(self.session.device.type, torch.bfloat16 if exact else dtype, enabled=not exact):
            both = [
                rivals.encode(batch.characters(side.flatten()), tokens).unflatten(0, (-1, self.steps))
                for side in batch.types
            ]
            for i, pair in enumerate(zip(lstm.forward_layers, lstm.backward_layers, strict=True)):
                outputs = rivals.lstm_loop(both, [each.weights for each in pair], reverse=(False, False))
                both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
            pairs = enumerate(zip(both, batch.targets, strict=True))
            return tuple(self.loss(network, *pair, offset=2 * draw + way) for way, pair in pairs)

    def loss(self, network: LanguageModel, hidden: Tensor, targets: Tensor, *, offset: int) -> Tensor:
        """The mean sampled loss of one direction."""
        words, device = len(network.softmax_bias), self.session.device
        drawn, tries = ops.log_uniform_sample(self.samples, words, seed=0, offset=offset)
        ids = torch.cat([targets.flatten(), drawn.to(device)])
        expected = ops.log_expected_counts(ids, tries.to(device), self.samples, words)
        rows = F.embedding(ids, network.softmax_weight, sparse=True)
        offsets = network.softmax_bias[ids] - expected.to(network.softmax_bias.dtype)
        count = targets.numel()
        return rivals.sampled_losses(hidden.flatten(0, 1), rows[:count], rows[count:], offsets, ids).mean()
