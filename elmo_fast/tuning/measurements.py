"""The measurements of `elmo-fast tune`: choices for this card, then ours beside what others would run."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from elmo_fast import ops
from elmo_fast.modules import BiLM
from elmo_fast.op_choices import Precision
from elmo_fast.ops import LSTMWeights, _card, _graphs, _tuned
from elmo_fast.ops._dispatch import why_refused
from elmo_fast.ops._tolerances import why_worse
from elmo_fast.ops._triton import Tiles
from elmo_fast.ops.highway import host as highway_host
from elmo_fast.ops.projected_lstm import host_persistent, tiling
from elmo_fast.ops.projected_lstm.layer import Layer
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.progress import Progress
from elmo_fast.tuning import rivals
from elmo_fast.tuning.clock import Clock
from elmo_fast.tuning.timed import OURS, Judge, Timed, fastest, largest_faster

SCAN_BATCHES = (1, 2, 4, 8, 16, host_persistent.LARGEST_BATCH)
LSTM_BATCHES = (64, 128, 256)
TILE_ROWS = (64, 256, 1024, 4096)
CUDNN, EAGER, COMPILED = "nn.LSTM (cuDNN)", "eager", "torch.compile"
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Found(NamedTuple):
    """What was measured on a card."""

    choices: dict[str, int]
    """name of a choice -> what is the fastest, as ops/_tuned.py has it"""
    rows: list[dict[str, Any]]
    """each side of each comparison, as benchmarks/results.py reads it"""
    skipped: list[str]
    """what could not be measured, with the reason"""


class Card(NamedTuple):
    """What all measurements share. batch sentences of `length` words; compiled: makes a compiled function of one."""

    device: torch.device
    precision: Precision
    model: ModelConfig
    batch: int
    length: int
    compiled: Compile
    timed: Timed

    def uniform(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Numbers between -scale and scale."""
        return torch.empty(*shape, device=self.device).uniform_(-scale, scale)


def tune(
    device: torch.device,
    precision: Precision = "float16",
    model: ModelConfig | None = None,
    *,
    batch: int = 32,
    length: int = 20,
    rounds: int = 20,
    progress: Progress = lambda done, total: None,
    compiled: Compile | None = None,
) -> Found:
    """Measures on `device`, keeps what is the fastest for every later process, and returns it.

    model: whose sizes count, by default the original architecture's; compiled: in the place of torch.compile. Kernels
    that fail their check on the card are not measured. Without a card nothing is kept: it shows that all of it runs.
    """
    torch.manual_seed(0)
    timed = Timed(Clock(device), rounds)
    compiled = compiled or functools.partial(torch.compile, dynamic=False)
    card = Card(device, precision, model or ModelConfig(dropout=0.0), batch, length, compiled, timed)
    parts = (scans, lstm_tiles, highway_tiles, words, graphs, beside_lstm, beside_embedding)
    choices: dict[str, int] = {}
    for done, part in enumerate(parts):
        progress(done, len(parts))
        with torch.no_grad():
            choices |= part(card)
    progress(len(parts), len(parts))
    if _card.present(device):
        _tuned.keep(device, choices)
    return Found(choices, timed.rows, timed.skipped)


def lstm(card: Card, batch: int) -> tuple[Tensor, list[LSTMWeights]]:
    """The input [B, T, D] and the weights of a layer of two directions."""
    cells, size = card.model.dim, card.model.projection_dim
    shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
    weights = [LSTMWeights(*(card.uniform(*shape, scale=cells**-0.5) for shape in shapes)) for _ in range(2)]
    return card.uniform(batch, card.length, size), weights


def by_choice(
    card: Card,
    variant: str,
    name: str,
    values: Mapping[int, str],
    call: Callable[[], object],
    default: int,
    why_wrong: Judge = lambda result: None,
) -> dict[str, int]:
    """The fastest of the values of a choice, whose sides have these names; the default one where none wins clearly."""
    by_side = {f"{OURS}, {side}": value for value, side in values.items()}
    calls = {side: choosing(name, value, call) for side, value in by_side.items()}
    times = card.timed.medians(variant, calls, why_wrong)
    return {name: fastest({by_side[side]: time for side, time in times.items()}, default)} if times else {}


def held_to_definition(op: Callable[..., Any], given: tuple[Any, ...], precision: str) -> Judge:
    """What is wrong with a result of `op(*given)`, by the tolerances: plain torch in float64 is the truth."""
    double = tree_map(lambda each: each.double(), given)
    truth = tree_leaves(op(*double, backend="reference"))
    plain = tree_leaves(op(*given, precision=precision, backend="reference"))

    def why_wrong(result: Any) -> str | None:
        results = enumerate(zip(tree_leaves(result), plain, truth, strict=True))
        return next(filter(None, (why_worse(f"result {i}", *each, precision) for i, each in results)), None)

    return why_wrong


def named(tiles: Sequence[Tiles]) -> dict[int, str]:
    """The place of each tile in its list, and what it is called."""
    return {place: f"{tile.rows} x {tile.columns}" for place, tile in enumerate(tiles)}


def choosing(name: str, value: int, call: Callable[[], object]) -> Callable[[], object]:
    """The call with that choice."""

    def run() -> object:
        with _tuned.forced({name: value}):
            return call()

    return run


def scans(card: Card) -> dict[str, int]:
    """Up to which batch the persistent scan is faster than the stepwise one."""
    why = why_refused("projected_lstm", "triton_persistent", card.device, torch.float32, card.precision)
    if why is not None:
        card.timed.skipped.append(f"persistent scan: {why}")
        return {}
    name = _tuned.scan_limit(card.model.dim, card.model.projection_dim, card.precision)
    pairs: dict[int, tuple[float, float]] = {}
    for batch in SCAN_BATCHES:
        x, weights = lstm(card, batch)
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


def lstm_tiles(card: Card) -> dict[str, int]:
    """The tile of the LSTM's cells by batch, where there are several to choose from."""
    why = why_refused("projected_lstm", "triton", card.device, torch.float32, card.precision)
    if why is not None:
        card.timed.skipped.append(f"tiles of projected_lstm: {why}")
        return {}
    size, cells, dtype = card.model.projection_dim, card.model.dim, getattr(torch, card.precision)
    found: dict[str, int] = {}
    for batch in LSTM_BATCHES:
        clip, ways = float("inf"), (False, True)
        layer = Layer(2, batch, card.length, size, size, cells, ways, clip, clip, False, dtype)
        sides = named(tiling.candidates(layer, "cells", card.device))
        if len(sides) > 1:
            x, weights = lstm(card, batch)
            call = functools.partial(ops.projected_lstm, [x, x], weights, precision=card.precision, backend="triton")
            why_wrong = held_to_definition(ops.projected_lstm, ([x, x], weights), card.precision)
            variant = f"LSTM layer by tile, forward, {batch} x {card.length}, {card.precision}"
            found |= by_choice(card, variant, tiling.name_of(layer, "cells"), sides, call, 0, why_wrong)
    return found


def highway_tiles(card: Card) -> dict[str, int]:
    """The tile of highway's layers by the number of words."""
    why = why_refused("highway", "triton", card.device, torch.float32, card.precision)
    if why is not None:
        card.timed.skipped.append(f"tiles of highway: {why}")
        return {}
    width, dtype = sum(number for _, number in card.model.filters), getattr(torch, card.precision)
    known = highway_host.of_dtype(dtype)
    weight, bias = card.uniform(2 * width, width, scale=width**-0.5), card.uniform(2 * width)
    found: dict[str, int] = {}
    for rows in TILE_ROWS:
        x, name = card.uniform(rows, width), _tuned.tile_of("highway", rows, width, card.precision)
        call = functools.partial(ops.highway, x, [weight], [bias], precision=card.precision, backend="triton")
        by_rule = known.index(highway_host.by_rule(rows, width, dtype, card.device))
        why_wrong = held_to_definition(ops.highway, (x, [weight], [bias]), card.precision)
        variant = f"highway by tile, {rows} words, {card.precision}"
        found |= by_choice(card, variant, name, named(known), call, by_rule, why_wrong)
    return found


def bilm(card: Card) -> tuple[BiLM, Tensor]:
    """A model with new weights, and the character ids [B, T, C] of words as frequent as in running text."""
    options = options_of(card.model, 1000)
    made = BiLM(options, stateful=False, cache_size=0, precision=card.precision).to(card.device).eval()
    rank = (1000 ** torch.rand(card.batch, card.length)).long().clamp(0, 999)
    slots = card.model.max_characters_per_token
    spelled = torch.randint(97, 123, (1000, slots))
    spelled[:, 0], spelled[:, min(7, slots - 2)], spelled[:, min(8, slots - 1) :] = 259, 260, 261
    return made, spelled[rank].to(card.device)


def words(card: Card) -> dict[str, int]:
    """Whether encoding each distinct word once is faster than encoding all."""
    model, ids = bilm(card)
    variant = f"character encoder by words, {card.batch} x {card.length}, {card.precision}"
    call = functools.partial(model._token_embedder, ids)
    return by_choice(card, variant, _tuned.distinct_words(card.precision), {1: "distinct", 0: "all"}, call, 1)


def graphs(card: Card) -> dict[str, int]:
    """Whether replaying a captured graph of the whole model is faster than launching its kernels."""
    model, ids = bilm(card)
    variant = f"embed by launches, {card.batch} x {card.length}, {card.precision}"
    sides = {1: "graph", 0: "one by one"}
    return by_choice(card, variant, _tuned.graphs(card.precision), sides, functools.partial(model, ids), 1)


def beside_lstm(card: Card) -> dict[str, int]:
    """One layer beside cuDNN (which has no clips), AllenNLP's loop, and that compiled."""
    dtype, (x, weights) = getattr(torch, card.precision), lstm(card, card.batch)
    theirs, narrow = [rivals.in_dtype(each, dtype) for each in weights], x.to(dtype)
    loop = functools.partial(rivals.lstm_loop, [narrow, narrow], theirs)
    calls: dict[str, Callable[[], object]] = {
        OURS: lambda: ops.projected_lstm([x, x], weights, precision=card.precision),
        CUDNN: functools.partial(rivals.cudnn_lstm(weights, dtype), narrow),
        EAGER: loop,
        COMPILED: functools.partial(loop, cell=card.compiled(rivals.lstm_cell), hoist=True),
    }
    card.timed.medians(f"LSTM layer, forward, {card.batch} x {card.length}, {card.precision}", calls)
    return {}


def beside_embedding(card: Card) -> dict[str, int]:
    """The whole model beside AllenNLP's in plain torch, eager and compiled."""
    model, ids = bilm(card)
    eager = functools.partial(rivals.EagerBiLM, model, getattr(torch, card.precision))
    calls = {
        OURS: functools.partial(model, ids),
        EAGER: functools.partial(eager(), ids),
        COMPILED: functools.partial(eager(card.compiled), ids),
    }
    card.timed.medians(f"embed, {card.batch} x {card.length}, {card.precision}", calls)
    _graphs.release(card.device)
    return {}
