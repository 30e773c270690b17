"""Which way is faster on the card: the scan of the LSTM, distinct words or all, graphs or launches."""

import functools
from collections.abc import Callable

from elmo_fast import ops
from elmo_fast.ops import _tuned
from elmo_fast.ops.projected_lstm import host_persistent
from elmo_fast.tuning.card import Card, choosing, held_to_definition
from elmo_fast.tuning.timed import OURS, largest_faster

SCAN_BATCHES = (1, 2, 4, 8, 16, host_persistent.LARGEST_BATCH)


def scans(card: Card) -> dict[str, int]:
    """Up to which batch the persistent scan is faster than the stepwise one; both are checked first."""
    for backend in ("triton_persistent", "triton"):
        if card.refuses("persistent scan", "projected_lstm", backend):
            return {}
    name = _tuned.scan_limit(card.model.dim, card.model.projection_dim, card.precision)
    pairs: dict[int, tuple[float, float]] = {}
    for batch in SCAN_BATCHES:
        x, weights = card.lstm(batch)
        run = functools.partial(ops.projected_lstm, [x, x], weights, precision=card.precision)
        calls: dict[str, Callable[[], object]] = {
            f"{OURS}, stepwise": choosing(name, 0, functools.partial(run, backend="triton")),
            f"{OURS}, persistent": functools.partial(run, backend="triton_persistent"),
        }
        why_wrong = held_to_definition(ops.projected_lstm, ([x, x], weights), card.precision)
        variant = f"LSTM layer by scan, forward, {batch} x {card.length}, {card.precision}"
        times = card.timed.medians(variant, calls, why_wrong)
        if len(times) < len(calls):
            break
        pairs[batch] = times[f"{OURS}, stepwise"], times[f"{OURS}, persistent"]
    return {name: largest_faster(pairs)} if pairs else {}


def words(card: Card) -> dict[str, int]:
    """Whether encoding each distinct word once is faster than encoding all."""
    model, ids = card.bilm()
    variant = f"character encoder by words, {card.batch} x {card.length}, {card.precision}"
    call = functools.partial(model._token_embedder, ids)
    return card.fastest(variant, _tuned.distinct_words(card.precision), {1: "distinct", 0: "all"}, call, 1)


def graphs(card: Card) -> dict[str, int]:
    """Whether replaying a captured graph of the whole model is faster than launching its kernels."""
    model, ids = card.bilm()
    variant = f"embed by launches, {card.batch} x {card.length}, {card.precision}"
    sides = {1: "graph", 0: "one by one"}
    return card.fastest(variant, _tuned.graphs(card.precision), sides, functools.partial(model, ids), 1)
