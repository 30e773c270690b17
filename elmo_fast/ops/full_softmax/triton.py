"""full_softmax in Triton: log-sum-exps over tiles of words, merged in order; no logit is written on the way forward."""

from typing import Any

from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._triton import define
from elmo_fast.ops._triton import unsupported as unsupported

if _triton.WHY_NOT is None:
    from elmo_fast.ops.full_softmax import host


def run(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, *, precision: str, chunk_bytes: int) -> Tensor:
    losses: Tensor = _forward(hidden, targets, weight, bias, precision, chunk_bytes)[0]
    return losses


def _fake_forward(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, precision: str, chunk_bytes: int
) -> tuple[Tensor, ...]:
    count, width = hidden.shape
    losses = hidden.new_empty(count)
    operands = hidden.new_empty(count, width, dtype=_triton.operand_dtype(precision))
    return losses, losses.new_empty(count), operands, targets.new_empty(count)


def _fake_backward(
    grad: Tensor, losses: Tensor, totals: Tensor, operands: Tensor, ids: Tensor, weight: Tensor, bias: Tensor,
    chunk_bytes: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    return weight.new_empty(operands.shape), weight.new_empty(weight.shape), weight.new_empty(bias.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, bias, _, ctx.chunk_bytes = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, weight, bias)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 6
    d_hidden, d_weight, d_bias = _backward_op(grad, *ctx.saved_tensors, ctx.chunk_bytes)
    return d_hidden, None, d_weight, d_bias, None, None


if _triton.WHY_NOT is None:
    _backward_op = define(
        "full_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor ids, Tensor weight, "
        "Tensor bias, int chunk_bytes) -> (Tensor, Tensor, Tensor)",
        host.backward,
        _fake_backward,
    )
    _forward = define(
        "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes) "
        "-> (Tensor, Tensor, Tensor, Tensor)",
        host.forward,
        _fake_forward,
        _setup,
        _backward,
    )
