"""What others would run in the place of ours, timed beside it."""

import functools
from collections.abc import Callable

from elmo_fast import ops
from elmo_fast.ops import _graphs
from elmo_fast.tuning import rivals
from elmo_fast.tuning.card import Card
from elmo_fast.tuning.timed import OURS

CUDNN, EAGER, COMPILED = "nn.LSTM (cuDNN)", "eager", "torch.compile"


def beside_lstm(card: Card) -> dict[str, int]:
    """One layer beside cuDNN (which has no clips), AllenNLP's loop, and that compiled."""
    x, weights = card.lstm(card.batch)
    theirs, narrow = [rivals.in_dtype(each, card.dtype) for each in weights], x.to(card.dtype)
    loop = functools.partial(rivals.lstm_loop, [narrow, narrow], theirs)
    calls: dict[str, Callable[[], object]] = {
        OURS: lambda: ops.projected_lstm([x, x], weights, precision=card.precision),
        CUDNN: functools.partial(rivals.cudnn_lstm(weights, card.dtype), narrow),
        EAGER: loop,
        COMPILED: functools.partial(loop, cell=card.compiled(rivals.lstm_cell), hoist=True),
    }
    card.timed.medians(f"LSTM layer, forward, {card.batch} x {card.length}, {card.precision}", calls)
    return {}


def beside_embedding(card: Card) -> dict[str, int]:
    """The whole model beside AllenNLP's in plain torch, eager and compiled."""
    model, ids = card.bilm()
    eager = functools.partial(rivals.EagerBiLM, model, card.dtype)
    calls = {
        OURS: functools.partial(model, ids),
        EAGER: functools.partial(eager(), ids),
        COMPILED: functools.partial(eager(card.compiled), ids),
    }
    card.timed.medians(f"embed, {card.batch} x {card.length}, {card.precision}", calls)
    _graphs.release(card.device)
    return {}
