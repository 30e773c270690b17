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
from elmo_fast import batch_to_ids, ops
from elmo_fast.pretrain.adagrad import AdaGrad, clip_by_global_norm
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step import train_step
from elmo_fast.pretrain.tensors import Side as Stream
from elmo_fast.pretrain.tensors import TensorBatch

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


def make_batch(session: Session, rows: int, words: int) -> tuple[TensorBatch, int]:
    """Both streams of running text, and how many words are distinct; a word's id is its rank."""
    steps = 3 if session.quick else STEPS
    running, source = session.sentences()
    session.note("text", source)
    count = rows * steps
    running = [running[i % len(running)] for i in range(2 * count + 1)]
    ranks = {word: i % words for i, word in enumerate(dict.fromkeys(running))}

    def stream(start: int) -> Stream:
        window = running[start : start + count]
        ids = batch_to_ids([window[i : i + steps] for i in range(0, count, steps)]).to(session.device)
        targets = torch.tensor([ranks[word] for word in running[start + 1 : start + 1 + count]])
        return Stream(ids, targets.to(session.device))

    return TensorBatch(stream(0), stream(count)), len(set(running))


def work(session: Session, rows: int, distinct: int, samples: int) -> roofline.Work:
    """What a step must cost; each distinct word goes through the encoder once."""
    if session.quick:
        return roofline.train_step(rows, 3, distinct, 16, 8, 2, samples, samples)
    return roofline.train_step(rows, STEPS, distinct, 4096, 512, 2, samples, 2 * samples)


def model(session: Session, words: int, **how: str) -> LanguageModel:
    """Weights of a fixed seed, made where they stay: a table of 793,471 words takes seconds on a CPU."""
    torch.manual_seed(0)
    with torch.device(session.device):
        made = LanguageModel(models.options(session, words), **how)
    models.spread(made.bilm._token_embedder)
    return made.to(session.device)


def ours(session: Session, precision: str, batch: TensorBatch, words: int, samples: int) -> Side:
    """pretrain.step.train_step; checked by the losses of the first step."""
    network = model(session, words, precision=precision)
    optimiser = AdaGrad(network.parameters())
    state, taken = None, 0

    def step() -> Tensor:
        nonlocal state, taken
        found = train_step(
            network, optimiser, batch, state, num_samples=samples, clip_norm=10.0, seed=0, step=taken
        )  # fmt: skip
        state, taken = found.state, taken + 1
        return torch.tensor([found.forward, found.backward], device=session.device)

    return Side(step, lambda: {"losses": step()})


def losses_of(
    network: LanguageModel, batch: TensorBatch, samples: int, draw: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Mean loss per direction in plain torch; `dtype` of the products' operands, by autocast (float64: throughout)."""
    device = batch.forward.ids.device
    exact = dtype == torch.float64
    tokens = rivals.encoder_parameters(network.bilm._token_embedder)
    lstm = network.bilm._elmo_lstm
    with torch.autocast(device.type, torch.bfloat16 if exact else dtype, enabled=not exact):
        both = [
            rivals.encode(side.ids.flatten(0, 1), *tokens).unflatten(0, side.ids.shape[:2]) for side in batch
        ]  # fmt: skip
        for i, pair in enumerate(zip(lstm.forward_layers, lstm.backward_layers, strict=True)):
            outputs = rivals.lstm_loop(both, [each.weights for each in pair], reverse=(False, False))
            both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
        found = []
        for way, (hidden, side) in enumerate(zip(both, batch, strict=True)):
            drawn, tries = ops.log_uniform_sample(samples, len(network.softmax_bias), seed=0, offset=2 * draw + way)
            ids = torch.cat([side.targets, drawn.to(device)])
            expected = ops.log_expected_counts(ids, tries.to(device), samples, len(network.softmax_bias))
            rows = F.embedding(ids, network.softmax_weight, sparse=True)
            offsets = network.softmax_bias[ids] - expected.to(network.softmax_bias.dtype)
            count = len(side.targets)
            found.append(rivals.sampled_losses(hidden.flatten(0, 1), rows[:count], rows[count:], offsets, ids).mean())
    return found[0], found[1]


def eager(session: Session, precision: str, batch: TensorBatch, words: int, samples: int) -> Side:
    """Plain torch under autocast."""
    network = model(session, words, backend="reference")
    dense = [p for name, p in network.named_parameters() if name != "softmax_weight"]
    optimisers = [
        torch.optim.Adagrad(dense, lr=0.2, initial_accumulator_value=1.0, eps=0.0, foreach=True),
        torch.optim.Adagrad([network.softmax_weight], lr=0.2, initial_accumulator_value=1.0, eps=0.0),
    ]
    taken = 0

    def step() -> Tensor:
        nonlocal taken
        network.zero_grad(set_to_none=True)
        forward, backward = losses_of(network, batch, samples, taken, getattr(torch, precision))
        (0.5 * (forward + backward) * batch.forward.ids.shape[1]).backward()
        clip_by_global_norm(network.parameters(), 10.0)
        for optimiser in optimisers:
            optimiser.step()
        taken += 1
        return torch.tensor([forward.item(), backward.item()], device=session.device)

    return Side(step, lambda: {"losses": step()})


def truth(session: Session, batch: TensorBatch, words: int, samples: int) -> dict[str, Tensor]:
    """The losses of the first step in float64."""
    network = model(session, words, backend="reference").double()
    with torch.no_grad():
        return {"losses": torch.stack(losses_of(network, batch, samples, 0, torch.float64))}
