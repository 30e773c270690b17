"""Small calls of adagrad_ and adagrad_rows_, with the norms that go before them."""

from torch import Tensor

from elmo_fast.ops._cases import Case, Draw, How, Tensors, listed, numbered
from elmo_fast.ops.adagrad.op import adagrad_, adagrad_rows_, clip_scale, merged_square_norm, square_norm

MULTIPLIES = False
SHAPES = ((3,), (70, 40), (1024,), (1,), (2500,), (33,), (7, 11), (5,), (1025,))  # more than one launch takes


def dense(t: Tensors, how: How) -> Tensors:
    """Nine tensors, clipped by their norm."""
    backend = how["backend"]
    weights, sums, gradients = (listed(name, t) for name in ("weight", "sum", "gradient"))
    square = square_norm(gradients, backend=backend)
    adagrad_(weights, sums, gradients, 0.1, clip_scale(square.sqrt(), 1.0), backend=backend)
    return {"square norm": square, **numbered("updated weight", weights), **numbered("updated sum", sums)}


def rows(t: Tensors, how: How) -> Tensors:
    """Rows of a table, half of them of one word."""
    backend = how["backend"]
    square = merged_square_norm(t["ids"], t["rows"], t["table"].shape[0], backend=backend)
    scale = clip_scale(square.sqrt(), 1.0)
    adagrad_rows_(t["table"], t["sum"], t["ids"], t["rows"], 0.1, scale, backend=backend)
    return {"square norm of rows": square, "updated table": t["table"], "updated sums": t["sum"]}


def rows_of(draw: Draw, number: int, width: int) -> dict[str, Tensor]:
    """A table of twelve rows, and gradients of which half are of one row."""
    ids = draw.whole(12, number)
    ids[::2] = 5
    table = {"table": draw.normal(12, width), "sum": 0.5 + draw.normal(12, width).square()}
    return {**table, "ids": ids, "rows": draw.normal(number, width)}


def cases(draw: Draw) -> list[Case]:
    """Dense tensors of many sizes; rows of a table, also of a width that 16 divides, which compiles other code."""
    made = [[draw.normal(*shape) for shape in SHAPES] for _ in range(3)]
    tensors = {
        **numbered("weight", made[0]),
        **numbered("sum", [0.5 + each.square() for each in made[1]]),
        **numbered("gradient", made[2]),
    }
    touched = [rows_of(draw, number, width) for number, width in ((200, 33), (208, 48))]
    return [Case(tensors, dense, differentiates=False), *(Case(each, rows, differentiates=False) for each in touched)]
