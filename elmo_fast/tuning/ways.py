"""Which way is faster on the card: distinct words or all, graphs or launches."""

import functools

from elmo_fast.ops import _tuned
from elmo_fast.tuning.card import Card


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
