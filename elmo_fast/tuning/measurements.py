"""The measurements of `elmo-fast tune`: choices for this card, then ours beside what others would run."""

import functools
from typing import Any, NamedTuple

import torch

from elmo_fast.op_choices import Precision
from elmo_fast.ops import _card, _tuned
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.progress import Progress
from elmo_fast.tuning import beside, tiles, ways
from elmo_fast.tuning.card import Card, Compile
from elmo_fast.tuning.clock import Clock
from elmo_fast.tuning.timed import Timed

PARTS = (
    tiles.lstm_tiles, tiles.highway_tiles, tiles.softmax_tiles, ways.words, ways.graphs,
    beside.beside_lstm, beside.beside_embedding,
)  # fmt: skip


class Found(NamedTuple):
    """What was measured on a card."""

    choices: dict[str, int]
    """name of a choice -> what is the fastest, as ops/_tuned.py has it"""
    rows: list[dict[str, Any]]
    """each side of each comparison, as benchmarks/results.py reads it"""
    skipped: list[str]
    """what could not be measured, with the reason"""


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
    choices: dict[str, int] = {}
    for done, part in enumerate(PARTS):
        progress(done, len(PARTS))
        with torch.no_grad():
            choices |= part(card)
    progress(len(PARTS), len(PARTS))
    if _card.present(device):
        _tuned.keep(device, choices)
    return Found(choices, timed.rows, timed.skipped)
