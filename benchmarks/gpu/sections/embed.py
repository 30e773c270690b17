"""Sentences to the activations of all layers, the original biLM: a batch of 128 x 20, and one sentence of 20.

Character ids lie on the device. "as used" is BiLM as a user calls it; "every token" encodes every token, not each
distinct word once, whose shapes depend on no value: that is what a CUDA graph may hold in any case.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu import models, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, measure
from benchmarks.timing import seconds
from elmo_fast import batch_to_ids
from elmo_fast.modules import BiLM, ElmoEmbedder
from elmo_fast.tuning import rivals

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
        for size, unit, aim in ((large, "tokens/s", 2e6), (1, "ms", 0.6)):
            sentences = models.sentences_of(session, size, length)
            batch(session, model, exact, sentences, precision, unit, () if session.quick else (Aim("value", aim),))
    end_to_end(session, models.sentences_of(session, large, length), precisions[0])


def batch(
    session: Session,
    model: BiLM,
    exact: BiLM,
    sentences: list[list[str]],
    precision: str,
    unit: str,
    aims: tuple[Aim, ...],
) -> None:
    """Two comparisons of one batch, as used and every token, against the same rivals; `exact` has the weights of
    `model` in float64."""
    size, length = len(sentences), len(sentences[0])
    ids = batch_to_ids(sentences).to(session.device)
    cells, projection = (16, 8) if session.quick else (4096, 512)
    words = {
        "as used": len({word for sentence in sentences for word in sentence}) + 2,
        "every token": size * (length + 2),
    }
    eager = functools.partial(rivals.EagerBiLM, model, getattr(torch, precision))
    for name, encoded in words.items():
        what = What(
            f"embed, {size} x {length}, {name}, {precision}",
            precision,
            unit,
            size * length if unit == "tokens/s" else 1.0,
            roofline.bilm(size, length + 2, cells, projection, 2, encoded),
            aims,
        )
        model._token_embedder.unique_words = name == "as used"
        sides = {
            OURS: lambda: side(lambda: model(ids)["activations"]),
            EAGER: lambda: side(functools.partial(eager(), ids)),
        }
        if name == "every token":
            sides[COMPILED] = lambda: side(functools.partial(eager(session.compiled), ids))
        compare(session, what, sides, side(lambda: exact(ids)["activations"]).result)


def side(activations: Callable[[], list[Tensor]]) -> Side:
    """The activations of all layers, without gradients."""
    call = torch.no_grad()(activations)
    return Side(call, lambda: {f"layer {i}": layer for i, layer in enumerate(call())})


def end_to_end(session: Session, sentences: list[list[str]], precision: str) -> None:
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
    size, length = len(sentences), len(sentences[0])
    rate = {OURS: lambda: size * length / seconds(lambda: embedder.embed_batch(sentences))}
    name, rounds = f"embed, {size} x {length}, strings to numpy arrays, {precision}", 3 if session.quick else 15
    how = {"unit": "tokens/s", "warmup": 2, "kind": GpuRow, "launched": "host clock", "ours": True}
    session.record(*measure(name, rate, rounds, **how))
