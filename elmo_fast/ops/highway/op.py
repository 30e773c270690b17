"""highway: gated layers that may pass their input through, then a projection."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import requires_grad
from elmo_fast.ops._checks import check_count, check_floating, check_same, check_shapes, check_tensor
from elmo_fast.ops._dispatch import select
from elmo_fast.ops._precision import check_no_gradient, under_autocast


class HighwayArguments(NamedTuple):
    """Checked arguments of `highway`, as backends receive them."""

    x: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    projection_weight: Tensor | None
    projection_bias: Tensor | None
    rows: Tensor | None
    """number of rows that count, [] int64"""
    precision: str

    def needs_backward(self) -> bool:
        """Return whether autograd needs a gradient."""
        return requires_grad(self.x, *self.weights, *self.biases, self.projection_weight, self.projection_bias)


def highway(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection_weight: Tensor | None = None,
    projection_bias: Tensor | None = None,
    *,
    precision: str = "float32",
    count: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Apply highway layers one after the other, then the projection if there is one.

        p = x weight^T + bias                                               [N, 2W]
        transform = relu(p[:, :W]),  gate = sigmoid(p[:, W:])
        x <- gate * x + (1 - gate) * transform                              the gate *carries* x
        y = x projection_weight^T + projection_bias

    The layout is AllenNLP's. In bilm-tf's files the gate multiplies the transform instead; because
    sigmoid(-p) = 1 - sigmoid(p), the readers negate its weights and biases.

    Args:
        x: rows of features, [N, W] float32|float64, any strides.
        weights: one per layer, [2W, W]: the transform's rows, then the gate's; may be empty.
        biases: one per layer, [2W].
        projection_weight: [D, W], or None for no projection.
        projection_bias: [D], or None.
        precision: dtype to which the operands of the products are rounded: "float32" (not at all), "bfloat16",
            "float16" or, without gradients, "int8" ({doc}`numerics`); under torch.autocast "float32" means autocast's
            dtype. The x that the gate carries is not rounded.
        count: number of rows to compute, [] int64 on the device of `x`, clamped to 0..N; None: all. Later rows of y
            are 0 and pass no gradient.
        backend: "auto", "native", "triton" or "reference".

    Returns:
        y, [N, D], or [N, W] without a projection; dtype of `x`.

    Raises:
        ElmoFastError: a wrong shape, dtype, device, precision or backend.

    Source: Srivastava et al. 2015, "Training Very Deep Networks", section 2; Kim et al. 2016, section 2.3.
    """
    check_tensor("highway", "x", x)
    precision, cast, no_autocast = under_autocast(precision, x.device, int8=True)
    x = cast(x)
    a = HighwayArguments(x, list(weights), list(biases), projection_weight, projection_bias, count, precision)
    _check(a)
    check_count("highway", "x", count, x)
    if precision == "int8":
        check_no_gradient(a.needs_backward())
    chosen = select("highway", backend, x.device, x.dtype, precision)
    with no_autocast:
        return chosen.run(a)


def _check(a: HighwayArguments) -> None:
    op, projection_weight = "highway", a.projection_weight
    check_shapes(op, ("x", a.x, "N W"))
    check_floating(op, "x", a.x)
    if len(a.weights) != len(a.biases):
        raise ElmoFastError(
            f"{op}: weights and biases must have one tensor per layer each; got {len(a.weights)} and {len(a.biases)}"
        )
    if projection_weight is None and a.projection_bias is not None:
        raise ElmoFastError(f"{op}: projection_bias needs projection_weight; pass both or neither")
    projection = [tensor for tensor in (projection_weight, a.projection_bias) if tensor is not None]
    check_same(op, "x, weights, biases and projection", [a.x, *a.weights, *a.biases, *projection])
    parameters: list[tuple[str, Tensor, str]] = []
    for i, (weight, bias) in enumerate(zip(a.weights, a.biases, strict=True)):
        parameters += [(f"weights[{i}]", weight, "2W W"), (f"biases[{i}]", bias, "2W")]
    if projection_weight is not None:
        parameters.append(("projection_weight", projection_weight, "D W"))
    if a.projection_bias is not None:
        parameters.append(("projection_bias", a.projection_bias, "D"))
    check_shapes(op, *parameters, **{"W": a.x.shape[1], "2W": 2 * a.x.shape[1]})
