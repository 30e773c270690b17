"""Sentences to the activations of all layers, the original biLM: a batch of 128 x 20, and one sentence of 20.

Character ids lie on the device. "as used" is BiLM as a user calls it; "every token" encodes every token, not each
distinct word once, whose shapes depend on no value: that is what a CUDA graph may hold in any case.
"""

import functools

import torch
from torch import Tensor

from benchmarks.gpu import models, rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, row
from benchmarks.timing import in_turn
from elmo_fast import batch_to_ids
from elmo_fast.modules import BiLM, ElmoEmbedder

EAGER = "eager, AllenNLP's"
LENGTH = 20


def run(session: Session) -> None:
    """A batch in bfloat16 and float16, one sentence, and strings to arrays end to end."""
    precisions = session.precisions("bfloat16", "float16")
    session.serving(precisions[0], "char_cnn", "highway", "projected_lstm", "unique_rows")
    session.note("text", session.sentences()[1])
    large, length = (3, 4) if session.quick else (128, LENGTH)
    exact = BiLM(models.options(session), stateful=False, cache_size=0, backend="reference").to(session.device).double()
    for precision in precisions[:1] if session.quick else precisions:
        model = models.bilm(session, precision)
        exact.load_state_dict(model.state_dict())
        rate, latency = ((), ()) if session.quick else ((Aim("value", 2e6),), (Aim("value", 0.6),))
        batch(session, model, exact, (large, length), precision, "tokens/s", rate)
        batch(session, model, exact, (1, length), precision, "ms", latency)
    end_to_end(session, large, length, precisions[0])


def batch(
    session: Session,
    model: BiLM,
    exact: BiLM,
    shape: tuple[int, int],
    precision: str,
    unit: str,
    aims: tuple[Aim, ...],
) -> None:
    """Two comparisons of one batch, as used and every token, against the same rivals; `exact` has the weights of
    `model` in float64."""
    size, length = shape
    per = size * length if unit == "tokens/s" else 1.0
    sentences = models.sentences_of(session, size, length)
    ids = batch_to_ids(sentences).to(session.device)
    distinct = len({word for sentence in sentences for word in sentence}) + 2
    for unique in (True, False):
        name = "as used" if unique else "every token"
        what = What(
            f"embed, {size} x {length}, {name}, {precision}",
            precision,
            unit,
            per,
            work(session, size, length, distinct if unique else size * (length + 2)),
            aims,
        )
        model._token_embedder.unique_words = unique
        sides = {
            OURS: functools.partial(side, model, ids),
            EAGER: functools.partial(eager, model, ids, precision),
        }
        if not unique:
            sides[COMPILED] = functools.partial(eager, model, ids, precision, session)
        compare(session, what, sides, side(exact, ids).result)


def work(session: Session, size: int, length: int, words: int) -> roofline.Work:
    """What the sentences, with BOS and EOS, must cost when `words` words go through the encoder."""
    if session.quick:
        return roofline.bilm(size, length + 2, 16, 8, 2, words)
    return roofline.bilm(size, length + 2, 4096, 512, 2, words)


def side(model: BiLM, ids: Tensor) -> Side:
    """A BiLM's activations."""

    def call() -> list[Tensor]:
        with torch.no_grad():
            return model(ids)["activations"]

    return Side(call, lambda: {f"layer {i}": layer for i, layer in enumerate(call())})


def eager(model: BiLM, ids: Tensor, precision: str, session: Session | None = None) -> Side:
    """AllenNLP's biLM; with a session, its encoder and its cell compiled."""
    rival = rivals.EagerBiLM(model, getattr(torch, precision))
    if session is not None:
        rival.encode, rival.cell, rival.hoist = (
            session.compiled(rivals.encode),
            session.compiled(rivals.lstm_cell),
            True,
        )

    def call() -> list[Tensor]:
        with torch.no_grad():
            return rival(ids)

    return Side(call, lambda: {f"layer {i}": layer for i, layer in enumerate(call())})


def end_to_end(session: Session, size: int, length: int, precision: str) -> None:
    """ElmoEmbedder.embed_batch: strings in, numpy arrays out, by the host's clock."""
    if session.late("embed, strings to arrays", 5.0):
        return
    embedder = ElmoEmbedder(
        models.options(session),
        None,
        cuda_device=session.device.index or 0 if session.clock.cuda else -1,
        stateful=False,
        cache_size=0,
        **models.settings(session, precision),
    )
    sentences = models.sentences_of(session, size, length)

    def rate() -> float:
        import time

        start = time.perf_counter()
        embedder.embed_batch(sentences)
        return size * length / (time.perf_counter() - start)

    values = in_turn({OURS: rate}, 3 if session.quick else 15, warmup=2)[OURS]
    name = f"embed, {size} x {length}, strings to numpy arrays, {precision}"
    session.record(row(name, OURS, values, threads=1, unit="tokens/s", kind=GpuRow, ours=True, launched="host clock"))
