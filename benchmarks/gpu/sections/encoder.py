"""The character encoder, forward and backward to all its weights, on running text.

"every token" encodes what it is given, word by word, on all sides: the kernels against each other. "as trained" lets
ours encode each distinct word once, as CharacterEncoder does by itself; the rivals have no such thing.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import Side, beside_torch, compare, side
from benchmarks.gpu.judge import COMPILED, EAGER, Aim, What
from benchmarks.gpu.models import character_encoder, character_ids
from benchmarks.gpu.session import Session
from elmo_fast.modules import CharacterEncoder
from elmo_fast.tuning import rivals

GOALS = (Aim("faster", 5.0, EAGER), Aim("faster", 2.0, COMPILED))
CHECKED = 256  # words on which results are compared with float64


def run(session: Session) -> None:
    """As trained, then every token; bfloat16."""
    (precision,) = session.precisions("bfloat16")
    session.serving(precision, "char_cnn", "highway", "unique_rows")
    tokens = 12 if session.quick else 20480
    ids, source, distinct = character_ids(session, tokens)
    session.note("text", source)
    session.note("distinct words", distinct)
    torch.manual_seed(0)
    encoder = character_encoder(session, precision)
    for unique in (True, False):
        name = "as trained" if unique else "every token"
        what = What(
            f"char encoder, forward + backward, {tokens} tokens, {name}, {precision}",
            precision,
            work=work(session, distinct if unique else tokens),
            aims=GOALS if unique else (),
        )
        rival = functools.partial(plain, encoder, ids, getattr(torch, precision))
        sides = beside_torch(session, functools.partial(ours, encoder, ids, unique), rival, rivals.encode)
        compare(session, what, sides, lambda: plain(encoder, ids[:CHECKED], torch.float64, rivals.encode).result())


def work(session: Session, words: int) -> roofline.Work:
    """What `words` words must cost, forward and backward."""
    if session.quick:
        return roofline.encoder(words, ((1, 4), (2, 8)), size=8, highways=1, train=True)
    return roofline.encoder(words, train=True)


def encoding(function: Callable[[Tensor], Tensor], ids: Tensor, leaves: list[Tensor], named: dict[str, Tensor]) -> Side:
    """function(ids) and the gradients of all leaves. Checked on the first words, so that float64 need not go further;
    the function sees one shape."""
    others = [leaf for leaf in leaves if all(leaf is not each for each in named.values())]
    timed = side(lambda: function(ids), named, others)
    return Side(timed.call, side(lambda: function(ids)[:CHECKED], named, others).result)


def ours(encoder: CharacterEncoder, ids: Tensor, unique: bool) -> Side:
    """CharacterEncoder.encode."""
    encoder.train()
    encoder.unique_words = unique
    weights = rivals.EncoderWeights.of(encoder)
    named = {"projection": weights.projection, "highway": weights.highways[0]}
    return encoding(encoder.encode, ids, list(encoder.parameters()), named)


def plain(encoder: CharacterEncoder, ids: Tensor, dtype: torch.dtype, encode: Callable[..., Tensor]) -> Side:
    """AllenNLP's encoder in plain torch, all in one dtype; `encode`: rivals.encode, or that compiled."""
    weights = rivals.in_dtype(rivals.EncoderWeights.of(encoder), dtype)
    named = {"projection": weights.projection, "highway": weights.highways[0]}
    leaves = [t for part in weights for t in (part if isinstance(part, list) else [part])]
    return encoding(lambda words: encode(words, weights), ids, leaves, named)
