"""The fastest tile of each kernel that has several, by the number of rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.ops import _softmax, _tuned
from elmo_fast.ops._triton import Tiles
from elmo_fast.ops.highway import host as highway_host
from elmo_fast.ops.projected_lstm import tiling
from elmo_fast.ops.projected_lstm.layer import Layer
from elmo_fast.tuning.card import Card, held_to_definition

LSTM_BATCHES = (64, 128, 256)
HIGHWAY_ROWS = (64, 256, 1024, 4096)
SOFTMAX_ROWS, SOFTMAX_WORDS, SAMPLES = (256, 1024, 4096), 16384, 8192


def fastest(
    card: Card, variant: str, name: str, known: Sequence[Tiles], call: Callable[..., Any], given: tuple[Any, ...],
    default: int = 0,
) -> dict[str, int]:  # fmt: skip
    """The fastest of the tiles for `call(*given)`, a place in their list; {} where all are the same."""
    sides = {known.index(tile): f"{tile.rows} x {tile.columns}" for tile in dict.fromkeys(known)}
    if len(sides) == 1:
        return {}
    run = functools.partial(call, *given, precision=card.precision, backend="triton")
    why_wrong = held_to_definition(call, given, card.precision)
    return card.fastest(f"{variant}, {card.precision}", name, sides, run, default, why_wrong)


def lstm_tiles(card: Card) -> dict[str, int]:
    """Of the LSTM's cells, by batch."""
    if card.refuses("tiles of projected_lstm", "projected_lstm"):
        return {}
    size, found, clip = card.model.projection_dim, dict[str, int](), float("inf")
    for batch in LSTM_BATCHES:
        layer = Layer(
            2, batch, card.length, size, size, card.model.dim, (False, True), clip, clip, False, card.dtype
        )  # fmt: skip
        known, (x, weights) = tiling.candidates(layer, "cells", card.device), card.lstm(batch)
        variant = f"LSTM layer by tile, forward, {batch} x {card.length}"
        found |= fastest(
            card, variant, tiling.name_of(layer, "cells"), known, ops.projected_lstm, ([x, x], weights)
        )  # fmt: skip
    return found


def highway_tiles(card: Card) -> dict[str, int]:
    """Of highway's layers, by the number of words."""
    if card.refuses("tiles of highway", "highway"):
        return {}
    width, found = sum(number for _, number in card.model.filters), dict[str, int]()
    known = highway_host.of_dtype(card.dtype)
    weight, bias = card.uniform(2 * width, width, scale=width**-0.5), card.uniform(2 * width)
    for rows in HIGHWAY_ROWS:
        by_rule = known.index(highway_host.by_rule(rows, width, card.dtype))
        name, given = (
            _tuned.tile_of("highway", rows, width, card.precision),
            (card.uniform(rows, width), [weight], [bias]),
        )
        found |= fastest(card, f"highway by tile, {rows} words", name, known, ops.highway, given, by_rule)
    return found


def softmax_tiles(card: Card) -> dict[str, int]:
    """Of the losses over a vocabulary, forward and backward, by the number of rows."""
    size, found = card.model.projection_dim, dict[str, int]()
    weight, bias = card.uniform(SOFTMAX_WORDS, size), card.uniform(SOFTMAX_WORDS)
    samples = torch.arange(SAMPLES, device=card.device)
    over = {"sampled_softmax": (samples, 2 * SAMPLES), "negative_sampling": (samples,), "full_softmax": ()}
    for op, more in over.items():
        if card.refuses(f"tiles of {op}", op):
            continue
        for rows in SOFTMAX_ROWS:
            known = _softmax.candidates(rows, SAMPLES if more else SOFTMAX_WORDS, size, card.dtype, card.device)
            targets = torch.arange(rows, device=card.device) % SOFTMAX_WORDS
            given = card.uniform(rows, size), targets, weight, bias, *more
            name, call = _softmax.name_of(op, rows, size, card.dtype), functools.partial(both_ways, getattr(ops, op))
            found |= fastest(card, f"{op} by tile, both ways, {rows} rows", name, known, call, given)
    return found


def both_ways(op: Callable[..., Tensor], hidden: Tensor, *given: Any, **how: Any) -> tuple[Tensor, Tensor]:
    """A loss's rows, and the gradient of hidden."""
    with torch.enable_grad():
        leaf = hidden.detach().requires_grad_()
        losses = op(leaf, *given, **how)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradient
