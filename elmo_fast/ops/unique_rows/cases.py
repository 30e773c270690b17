"""Small calls of unique_rows, padded_unique_rows and gather_rows: rows that repeat, one of them very often."""

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.unique_rows.op import gather_rows, padded_unique_rows

MULTIPLIES = False


def restored(t: Tensors, how: How) -> Tensors:
    """What no backend may do otherwise, as the order of distinct rows is its own."""
    unique, inverse, count = padded_unique_rows(t["ids"], backend=how["backend"])
    behind = torch.arange(len(unique), device=unique.device)[:, None] >= count
    return {
        "unique[inverse]": unique[inverse].double(),
        "count": count.double(),
        "rows from count on": torch.where(behind, unique, 0).double(),
        "rows in use": torch.zeros_like(count).double() + (inverse.max() + 1),
    }


def gathered(t: Tensors, how: How) -> Tensors:
    """Rows of a table and, backwards, sums of many rows of one id."""
    return {"rows": gather_rows(t["table"], t["inverse"], backend=how["backend"])}


def cases(draw: Draw) -> list[Case]:
    """130 words of nine characters; rows of a table of seven, half of them one row, and of sizes that 16 divides."""
    words, places = draw.whole(3, 130, 9), draw.whole(7, 144)
    places[::2] = 4
    words[::3] = words[1]
    odd, even = {"table": draw.normal(7, 33), "inverse": places[:130]}, {"table": draw.normal(7, 48), "inverse": places}
    return [Case({"ids": words}, restored, differentiates=False), Case(odd, gathered), Case(even, gathered)]
