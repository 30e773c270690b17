"""One step of pretraining, original architecture, batch 128 x 20, 8192 negatives of 793,471 words: positions/s.

The rival is plain torch under autocast: AllenNLP's encoder and loop, the same sampled loss with sparse embeddings, the
same clip, torch's own AdaGrad (dense but for the table, whose rows it updates as ours does).
"""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu import models, rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import OURS, What
from benchmarks.gpu.session import Session
from benchmarks.reading import reading
from elmo_fast import ops
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad, clip_by_global_norm
from elmo_fast.pretrain.step.training_step import Step, Words

EAGER = "eager, autocast"
STEPS = 20


def run(session: Session) -> None:
    """Batches of 128 and of 1024 rows."""
    (precision,) = session.precisions("bfloat16")
    words, samples = (100, 10) if session.quick else (793_471, 8192)
    session.serving(precision, "char_cnn", "highway", "projected_lstm", "sampled_softmax")
    for rows in (2,) if session.quick else (128, 1024):
        if session.late(f"train step, {rows} x {STEPS}", 20.0 if session.clock.cuda else 0.0):
            return
        batch, distinct = make_batch(session, rows, words)
        positions = rows * (3 if session.quick else STEPS)
        what = What(
            f"train step, {rows} x {positions // rows}, {samples} of {words:,} words, {precision}",
            precision,
            "positions/s",
            positions,
            work(session, rows, distinct, samples),
            graph=False,  # a step hands its losses to the host
        )
        names = {
            OURS: functools.partial(ours, session, precision, batch, words, samples),
            EAGER: functools.partial(eager, session, precision, batch, words, samples),
        }
        compare(session, what, names, functools.partial(truth, session, batch, words, samples), tolerance=0.02)


def make_batch(session: Session, rows: int, words: int) -> tuple[Words, int]:
    """Both streams of running text, and how many words are distinct; a word's id is its rank."""
    count = rows * (3 if session.quick else STEPS)
    running, source = session.sentences()
    session.note("text", source)
    running = [running[i % len(running)] for i in range(2 * count)]
    ranks = {word: i % words for i, word in enumerate(dict.fromkeys(running))}
    return reading(running[:count], running[count:], ranks, rows, session.device), len(ranks)


def work(session: Session, rows: int, distinct: int, samples: int) -> roofline.Work:
    """What a step must cost; each distinct word goes through the encoder once."""
    if session.quick:
        return roofline.train_step(rows, 3, distinct, 16, 8, 2, samples, samples)
    return roofline.train_step(rows, STEPS, distinct, 4096, 512, 2, samples, 2 * samples)


def model(session: Session, words: int, samples: int, **how: str) -> LanguageModel:
    """Weights of a fixed seed, made where they stay: a table of 793,471 words takes seconds on a CPU."""
    torch.manual_seed(0)
    with torch.device(session.device):
        made = LanguageModel(models.options(session, words, samples), **how)
    models.spread(made.bilm._token_embedder)
    return made.to(session.device)


def ours(session: Session, precision: str, batch: Words, words: int, samples: int) -> Side:
    """pretrain.step.train_step; checked by the losses of the first step."""
    network = model(session, words, samples, precision=precision)
    update = Step(network, AdaGrad(network.parameters()), clip_norm=10.0)
    state, taken = None, 0

    def step() -> Tensor:
        nonlocal state, taken
        found = update(batch, state, taken)
        state, taken = found.state, taken + 1
        return torch.tensor([found.forward, found.backward], device=session.device)

    return Side(step, lambda: {"losses": step()})


def losses_of(
    network: LanguageModel, batch: Words, samples: int, draw: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Mean loss per direction in plain torch; `dtype` of the products' operands, by autocast (float64: throughout)."""
    device, steps = batch.types.device, batch.types.shape[2]
    exact = dtype == torch.float64
    tokens = rivals.encoder_parameters(network.bilm._token_embedder)
    lstm = network.bilm._elmo_lstm
    with torch.autocast(device.type, torch.bfloat16 if exact else dtype, enabled=not exact):
        both = [
            rivals.encode(batch.characters(side.flatten()), *tokens).unflatten(0, (-1, steps)) for side in batch.types
        ]
        for i, pair in enumerate(zip(lstm.forward_layers, lstm.backward_layers, strict=True)):
            outputs = rivals.lstm_loop(both, [each.weights for each in pair], reverse=(False, False))
            both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
        found = []
        for way, (hidden, side) in enumerate(zip(both, batch.targets, strict=True)):
            drawn, tries = ops.log_uniform_sample(samples, len(network.softmax_bias), seed=0, offset=2 * draw + way)
            ids = torch.cat([side.flatten(), drawn.to(device)])
            expected = ops.log_expected_counts(ids, tries.to(device), samples, len(network.softmax_bias))
            rows = F.embedding(ids, network.softmax_weight, sparse=True)
            offsets = network.softmax_bias[ids] - expected.to(network.softmax_bias.dtype)
            count = side.numel()
            found.append(rivals.sampled_losses(hidden.flatten(0, 1), rows[:count], rows[count:], offsets, ids).mean())
    return found[0], found[1]


def eager(session: Session, precision: str, batch: Words, words: int, samples: int) -> Side:
    """Plain torch under autocast."""
    network = model(session, words, samples, backend="reference")
    dense = [p for name, p in network.named_parameters() if name != "loss.softmax_w"]
    optimisers = [
        torch.optim.Adagrad(dense, lr=0.2, initial_accumulator_value=1.0, eps=0.0, foreach=True),
        torch.optim.Adagrad([network.softmax_weight], lr=0.2, initial_accumulator_value=1.0, eps=0.0),
    ]
    taken = 0

    def step() -> Tensor:
        nonlocal taken
        network.zero_grad(set_to_none=True)
        forward, backward = losses_of(network, batch, samples, taken, getattr(torch, precision))
        (0.5 * (forward + backward) * batch.types.shape[2]).backward()
        clip_by_global_norm(network.parameters(), 10.0)
        for optimiser in optimisers:
            optimiser.step()
        taken += 1
        return torch.tensor([forward.item(), backward.item()], device=session.device)

    return Side(step, lambda: {"losses": step()})


def truth(session: Session, batch: Words, words: int, samples: int) -> dict[str, Tensor]:
    """The losses of the first step in float64."""
    network = model(session, words, samples, backend="reference").double()
    with torch.no_grad():
        return {"losses": torch.stack(losses_of(network, batch, samples, 0, torch.float64))}
