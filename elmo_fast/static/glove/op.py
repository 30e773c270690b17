"""glove_: one pass of weighted least squares over the non-zero entries of a co-occurrence matrix."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_floating, check_same, check_shape, check_words, given
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

    The rate stands within the squares, as in the published program: while a is near its first value, 1, a step is
    the rate times the gradient; in the end it is g / √(sum of g²), whatever the rate. "native" shares the entries out
    among torch's threads, which write to the tables without locks (Hogwild): on one thread the result is that of
    entry after entry; on several it differs from run to run.

    Args:
        rows, columns: i and j of each entry, [Z] int32
        values: X, [Z], dtype of the weights, above 0
        weights: w, w~, b and b~, contiguous, float32 or float64; changed
        squares: a of each, alike; changed
        learning_rate, x_max, alpha: see above
        backend: "auto", "native" or "reference"

    Returns:
        J as it was met, each entry before its step, [] float64

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit, indices outside the tables, values not above 0.

    Source: Pennington et al. 2014, eq. 8 and 9, section 4.2; Niu et al. 2011, Hogwild!.
    """
    op = "glove_"
    check_shape(op, "weights.words", weights.words, "V D")
    check_floating(op, "weights.words", weights.words)
    num_words, dimension = weights.words.shape
    for group, tables in (("weights", weights), ("squares", squares)):
        for name, table in tables._asdict().items():
            letters = "V" if name.endswith("biases") else "V D"
            check_shape(op, f"{group}.{name}", table, letters, V=num_words, D=dimension)
            if not table.is_contiguous():
                raise ElmoFastError(f"{op}: {group}.{name} must be contiguous, as it is changed in place")
    check_same(op, "values, weights and squares", [weights.words, values, *weights, *squares])
    for name, index in (("rows", rows), ("columns", columns)):
        check_shape(op, name, index, "Z", Z=len(values))
        check_dtype(op, name, index, torch.int32)
        if index.device != values.device:
            raise ElmoFastError(f"{op}: {name} must be on {values.device}, as values are; got {given(index)}")
    check_words(op, num_words, rows=rows, columns=columns)
    if not (learning_rate > 0 and x_max > 0 and 0 <= alpha <= 1):
        raise ElmoFastError(
            f"{op}: learning_rate and x_max must be above 0 and alpha from 0 to 1; "
            f"got {learning_rate}, {x_max}, {alpha}"
        )
    if values.is_meta:
        return values.new_empty((), dtype=torch.float64)
    if len(values):
        low, high = (float(end) for end in values.aminmax())
        if not (low > 0 and high < torch.inf):
            raise ElmoFastError(f"{op}: values must be finite and above 0; got {low} to {high}")
    kernel = select("glove", backend, values.device, values.dtype)
    loss: Tensor = kernel.run(
        rows.contiguous(), columns.contiguous(), values.contiguous(), weights, squares, learning_rate, x_max, alpha
    )
    return loss
