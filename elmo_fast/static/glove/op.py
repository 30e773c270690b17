"""glove_: one pass of weighted least squares over the non-zero entries of a co-occurrence matrix."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_device, check_dtype, check_same, check_shapes, check_words, checked
from elmo_fast.ops._dispatch import register, registered_op, select


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
    _check(rows, columns, values, weights, squares)
    check_settings(learning_rate, x_max, alpha)
    if values.is_meta:
        return values.new_empty((), dtype=torch.float64)
    backend = select("glove", backend, values.device, values.dtype)
    run = checked("glove", _reference) if backend == "reference" else registered_op("glove", backend)
    entries = rows.contiguous(), columns.contiguous(), values.contiguous()
    loss: Tensor = run(*entries, list(weights), list(squares), learning_rate, x_max, alpha)
    return loss


def check_settings(learning_rate: float, x_max: float, alpha: float) -> None:
    """Raise ElmoFastError for a setting out of range."""
    if not (learning_rate > 0 and x_max > 0 and 0 <= alpha <= 1):
        got = f"{learning_rate}, {x_max}, {alpha}"
        raise ElmoFastError(f"glove: learning_rate and x_max must be above 0 and alpha from 0 to 1; got {got}")


def _reference(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: Sequence[Tensor],
    squares: Sequence[Tensor],
    learning_rate: float,
    x_max: float,
    alpha: float,
) -> Tensor:
    """Run glove_ in plain torch, entry after entry: the definition."""
    words, contexts, word_biases, context_biases = weights
    loss = torch.zeros((), dtype=torch.float64, device=values.device)
    factors = (values / x_max).clamp_max(1) ** alpha
    logarithms = values.log()
    for entry, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        difference = words[i] @ contexts[j] + word_biases[i] + context_biases[j] - logarithms[entry]
        loss += factors[entry] * difference.double() ** 2
        slope = learning_rate * factors[entry] * difference
        steps = slope * contexts[j], slope * words[i], slope, slope
        for weight, sums, at, step in zip(weights, squares, (i, j, i, j), steps, strict=True):
            weight[at] -= step / sums[at].sqrt()
            sums[at] += step**2
    return loss


def _check(rows: Tensor, columns: Tensor, values: Tensor, weights: GloveWeights, squares: GloveWeights) -> None:
    op = "glove_"
    check_shapes(op, ("weights.words", weights.words, "V D"))
    num_words, dimension = weights.words.shape
    for group, tables in (("weights", weights), ("squares", squares)):
        for name, table in tables._asdict().items():
            letters = "V" if name.endswith("biases") else "V D"
            check_shapes(op, (f"{group}.{name}", table, letters), V=num_words, D=dimension)
            if not table.is_contiguous():
                raise ElmoFastError(f"{op}: {group}.{name} must be contiguous, as it is changed in place")
    check_same(op, "weights, squares and values", [*weights, *squares, values], floating=True)
    check_shapes(op, ("values", values, "Z"), ("rows", rows, "Z"), ("columns", columns, "Z"))
    for name, index in (("rows", rows), ("columns", columns)):
        check_dtype(op, name, index, torch.int32)
        check_device(op, f"{name} and values", index, values)
    check_words(op, num_words, rows=rows, columns=columns)
    if len(values) and not values.is_meta:
        low, high = (float(end) for end in values.aminmax())
        if not (low > 0 and high < torch.inf):
            raise ElmoFastError(f"{op}: values must be finite and above 0; got {low} to {high}")


register_op("glove", lambda a: a.values.new_empty((), dtype=torch.float64))
register("glove", "native")
