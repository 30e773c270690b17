"""Small calls of highway: rows and columns that fill no tile, all rows or a counted few."""

import torch

from elmo_fast.ops import _tuned
from elmo_fast.ops._cases import Case, Draw, How, Tensors, listed, numbered
from elmo_fast.ops.highway.op import highway

MULTIPLIES = True


def tensors_of(draw: Draw, rows: int, width: int, size: int) -> dict[str, torch.Tensor]:
    """Two layers and a projection."""
    return {
        "x": draw.normal(rows, width),
        **numbered("weights", [draw.normal(2 * width, width, scale=width**-0.5) for _ in range(2)]),
        **numbered("biases", [draw.normal(2 * width, scale=2) for _ in range(2)]),
        "projection_weight": draw.normal(size, width, scale=width**-0.5),
        "projection_bias": draw.normal(size),
    }


def call(t: Tensors, how: How) -> Tensors:
    """All rows, or a counted few."""
    projection = t["projection_weight"], t["projection_bias"]
    y = highway(t["x"], listed("weights", t), listed("biases", t), *projection, count=t.get("count"), **how)
    return {"y": y}


def cases(draw: Draw) -> list[Case]:
    """70 rows of which 33 count; in those for the tiles all do."""
    return [Case({**tensors_of(draw, 70, 40, 24), "count": draw.whole(1) + 33}, call)]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """Each tile that the rule may choose on this card, once; sums over several tiles' depths, sizes that 16 divides."""
    from elmo_fast.ops.highway import host

    rows, width = 80, 144
    name, tensors = _tuned.tile_of("highway", rows, width, precision), tensors_of(draw, rows, width, 48)
    places = range(len(host.of_dtype(getattr(torch, precision))))
    return [Case(tensors, call, choices={name: place}) for place in places]
