"""Small calls of highway: rows and columns that fill no tile, all rows or a counted few."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors, listed, numbered
from elmo_fast.ops.highway.op import highway

MULTIPLIES = True


def cases(draw: Draw) -> list[Case]:
    """Two layers and a projection over 70 rows; the same where 33 of them count."""
    width, rows = 40, 70
    tensors = {
        "x": draw.normal(rows, width),
        **numbered("weights", [draw.normal(2 * width, width, scale=width**-0.5) for _ in range(2)]),
        **numbered("biases", [draw.normal(2 * width, scale=2) for _ in range(2)]),
        "projection_weight": draw.normal(24, width, scale=width**-0.5),
        "projection_bias": draw.normal(24),
    }

    def call(t: Tensors, how: How) -> Tensors:
        projection = t["projection_weight"], t["projection_bias"]
        y = highway(t["x"], listed("weights", t), listed("biases", t), *projection, count=t.get("count"), **how)
        return {"y": y}

    return [Case(tensors, call), Case({**tensors, "count": draw.whole(1) + 33}, call)]
