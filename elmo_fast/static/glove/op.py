"""glove_: one pass of weighted least squares over the non-zero entries of a co-occurrence matrix."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_floating, check_same, check_shapes, check_words, described
from elmo_fast.ops._dispatch import select


class GloveWeights(NamedTuple):
    """GloVe's parameters or, of the same shapes, the sums of their squared gradients."""

    words: Tensor
    """w, [V, D]"""
    contexts: Tensor
    """w~, [V, D]"""
    word_biases: Tensor
    """b, [V]"""
    context_biases: Tensor
    """b~, [V]"""


class GloveArguments(NamedTuple):
    """What a backend is given: the arguments of `glove_`, checked."""

    rows: Tensor
    columns: Tensor
    values: Tensor
    weights: GloveWeights
    squares: GloveWeights
    learning_rate: float
    x_max: float
    alpha: float


@torch.no_grad()
def glove_(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: GloveWeights,
    squares: GloveWeights,
    *,
    learning_rate: float = 0.05,
    x_max: float = 100.0,
    alpha: float = 0.75,
    backend: str = "auto",
) -> Tensor:
    """GloVe's loss over the entries X_ij in the order given, and a step of AdaGrad for each, in place.

        J = sum of f(X_ij) (w_i · w~_j + b_i + b~_j - ln X_ij)²,    f(x) = min(1, (x / x_max)^alpha)
        g = learning_rate · (half of the entry's gradient);    parameter -= g / √a,    a += g²

    The squares include the rate, as in the published program: while a is near its initial value, 1, a step is
    the rate times the gradient; in the end it is g / √(sum of g²), whatever the rate. "native" divides the entries
    among torch's threads, which write to the tables without locks (Hogwild): on one thread the result is that of
    entry after entry; on several it differs from run to run.

    Args:
        rows, columns: i and j of each entry, [Z] int32
        values: X, [Z], dtype of the weights, above 0
        weights: w, w~, b and b~, contiguous, float32 or float64; changed
        squares: a of each, of the same shapes; changed
        learning_rate, x_max, alpha: see above
        backend: "auto", "native" or "reference"

    Returns:
        J, each entry before its step, [] float64

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not match, indices outside the tables, values not above 0.

    Source: Pennington et al. 2014, eq. 8 and 9, section 4.2; Niu et al. 2011, Hogwild!.
    """
    a = GloveArguments(rows, columns, values, weights, squares, learning_rate, x_max, alpha)
    _check(a)
    if values.is_meta:
        return values.new_empty((), dtype=torch.float64)
    kernel = select("glove", backend, values.device, values.dtype)
    loss: Tensor = kernel.run(
        a._replace(rows=rows.contiguous(), columns=columns.contiguous(), values=values.contiguous())
    )
    return loss


def _check(a: GloveArguments) -> None:
    op = "glove_"
    check_shapes(op, ("weights.words", a.weights.words, "V D"))
    check_floating(op, "weights.words", a.weights.words)
    num_words, dimension = a.weights.words.shape
    for group, tables in (("weights", a.weights), ("squares", a.squares)):
        for name, table in tables._asdict().items():
            letters = "V" if name.endswith("biases") else "V D"
            check_shapes(op, (f"{group}.{name}", table, letters), V=num_words, D=dimension)
            if not table.is_contiguous():
                raise ElmoFastError(f"{op}: {group}.{name} must be contiguous, as it is changed in place")
    check_same(op, "values, weights and squares", [a.weights.words, a.values, *a.weights, *a.squares])
    for name, index in (("rows", a.rows), ("columns", a.columns)):
        check_shapes(op, (name, index, "Z"), Z=len(a.values))
        check_dtype(op, name, index, torch.int32)
        if index.device != a.values.device:
            raise ElmoFastError(f"{op}: {name} must be on {a.values.device}, as values are; got {described(index)}")
    check_words(op, num_words, rows=a.rows, columns=a.columns)
    if not (a.learning_rate > 0 and a.x_max > 0 and 0 <= a.alpha <= 1):
        raise ElmoFastError(
            f"{op}: learning_rate and x_max must be above 0 and alpha from 0 to 1; "
            f"got {a.learning_rate}, {a.x_max}, {a.alpha}"
        )
    if len(a.values) and not a.values.is_meta:
        low, high = (float(end) for end in a.values.aminmax())
        if not (low > 0 and high < torch.inf):
            raise ElmoFastError(f"{op}: values must be finite and above 0; got {low} to {high}")
