"""highway: gated layers that may pass their input through, then a projection."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import register_op, requires_grad
from elmo_fast.ops._checks import check_count, check_same, check_shapes, check_tensor, checked
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._packed import PackedWeights, pack
from elmo_fast.ops._precision import check_no_gradient, linear, operand, under_autocast
from elmo_fast.ops._table_rows import first_rows


def highway(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection_weight: Tensor | None = None,
    projection_bias: Tensor | None = None,
    *,
    precision: str = "float32",
    count: Tensor | None = None,
    packed: PackedWeights | None = None,
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
        packed: holds copies of the weights as kernels read them between calls, for inference; None: made at each call.
        backend: "auto", "native", "triton" or "reference".

    Returns:
        y, [N, D], or [N, W] without a projection; dtype of `x`.

    Raises:
        ElmoFastError: a wrong shape, dtype, device, precision or backend.

    Source: Srivastava et al. 2015, "Training Very Deep Networks", section 2; Kim et al. 2016, section 2.3.
    """
    op = "highway"
    check_tensor(op, "x", x)
    precision, (x,), no_autocast = under_autocast(precision, x.device, x, int8=True)
    weights, biases, projection = list(weights), list(biases), (projection_weight, projection_bias)
    if len(weights) != len(biases):
        raise ElmoFastError(
            f"{op}: weights and biases must have one tensor per layer each; got {len(weights)} and {len(biases)}"
        )
    if projection_weight is None and projection_bias is not None:
        raise ElmoFastError(f"{op}: projection_bias needs projection_weight; pass both or neither")
    shaped = [("x", x, "N W")]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        shaped += [(f"weights[{i}]", weight, "2W W"), (f"biases[{i}]", bias, "2W")]
    if projection_weight is not None:
        shaped.append(("projection_weight", projection_weight, "D W"))
    if projection_bias is not None:
        shaped.append(("projection_bias", projection_bias, "D"))
    check_shapes(op, *shaped, **({"2W": 2 * x.shape[1]} if x.dim() == 2 else {}))
    _, tensors, _ = zip(*shaped, strict=True)
    check_same(op, "x, weights, biases and projection", tensors, floating=True)
    if count is not None:
        check_count(op, "x", count, x)
    save = requires_grad(x, *weights, *biases, *projection)
    if precision == "int8":
        check_no_gradient(save)
    backend = select(op, backend, x.device, x.dtype, precision)
    if not weights and projection_weight is None:
        return first_rows(x, count).clone()
    with no_autocast:
        if backend == "reference":
            return checked(op, reference)(x, weights, biases, *projection, count, precision)
        run = registered_op(op, backend)
        plain = [] if projection_weight is None else [projection_weight]
        if backend == "native":
            copied = functools.partial(pack, precision, highway=weights, plain=plain)
            copies = None if packed is None else packed.of(precision, [*weights, *plain], copied)
            x = x if count is None else first_rows(x, count)
            y = run(x, weights, biases, *projection, None, precision, save, copies)[0]
            return y if count is None else first_rows(y, count)
        copies = None
        if packed is not None and not save:
            from elmo_fast.ops.highway import kernels

            copied = functools.partial(kernels.pack, weights, plain, precision)
            copies = packed.of(precision, [*weights, *plain], copied)
        return run(x, weights, biases, *projection, count, precision, save, copies)[0]


def reference(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    count: Tensor | None,
    precision: str,
) -> Tensor:
    """Compute highway in plain torch: the definition."""
    x = first_rows(x, count)
    for weight, bias in zip(weights, biases, strict=True):
        products = linear(x, operand(weight, precision), precision, bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if projection_weight is not None:
        x = linear(x, operand(projection_weight, precision), precision, projection_bias)
    return first_rows(x, count)


def _fake(a: Any) -> Tensor:
    return a.x.new_empty(a.x.shape[0], a.x.shape[1] if a.projection_weight is None else a.projection_weight.shape[0])


def _products(a: Any) -> int:
    weights = a.weights if a.projection_weight is None else [*a.weights, a.projection_weight]
    return len(a.x) * sum(weight.numel() for weight in weights)


# C++ saves transform, gate and output of each layer.
register_op("highway", _fake, lambda a: [a.x.new_empty(len(a.weights), 3, *a.x.shape)], _products)
register("highway", "native", "triton", kernels="elmo_fast.ops.highway.kernels", int8=True)
