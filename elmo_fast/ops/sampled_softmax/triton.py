"""sampled_softmax in Triton: logits that are never written, their gradient in chunks that stay in L2, no host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._table_rows import table_gradient
from elmo_fast.ops._triton import define
from elmo_fast.ops._triton import unsupported as unsupported

if _triton.WHY_NOT is None:
    from elmo_fast.ops.sampled_softmax import host


def run(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor | int, *,
    correction: str, sparse: bool, chunk_bytes: int, precision: str,
) -> Tensor:  # fmt: skip
    if isinstance(tries, Tensor):
        tries = tries.to(hidden.device, torch.int64, non_blocking=True)
    else:
        tries = torch.full((), tries, dtype=torch.int64, device=hidden.device)
    losses: Tensor = _forward(
        hidden, targets, weight, bias, samples, tries, correction, sparse, chunk_bytes, precision
    )[0]  # fmt: skip
    return losses


def _run_forward(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor, correction: str,
    sparse: bool, chunk_bytes: int, precision: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    return host.forward(hidden, targets, weight, bias, samples, tries, correction, precision)


def _fake_forward(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor, correction: str,
    sparse: bool, chunk_bytes: int, precision: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    (count, width), size, dtype = hidden.shape, samples.shape[0], _triton.operand_dtype(precision)
    of = hidden.new_empty
    return (
        of(count), of(count), of(count, width, dtype=dtype), of(size, width, dtype=dtype), of(size),
        targets.new_empty(count + size),
    )  # fmt: skip


def _fake_backward(
    grad: Tensor, losses: Tensor, totals: Tensor, operands: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor,
    weight: Tensor, chunk_bytes: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    (count, width), words = operands.shape, ids.shape[0]
    return weight.new_empty(count, width), weight.new_empty(words, width), weight.new_empty(words)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    weight, ctx.sparse, ctx.chunk_bytes = inputs[2], inputs[7], inputs[8]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, weight)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 10
    *saved, weight = ctx.saved_tensors
    d_hidden, d_rows, d_offsets = _backward_op(grad, *saved, weight, ctx.chunk_bytes)
    ids = saved[-1]
    d_weight = table_gradient(weight.shape, ids, d_rows, ctx.sparse)
    d_bias = table_gradient(weight.shape[:1], ids, d_offsets, ctx.sparse)
    return d_hidden, None, d_weight, d_bias, None, None, None, None, None, None


if _triton.WHY_NOT is None:
    _backward_op = define(
        "sampled_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor rows, "
        "Tensor offsets, Tensor ids, Tensor weight, int chunk_bytes) -> (Tensor, Tensor, Tensor)",
        host.backward,
        _fake_backward,
    )
    _forward = define(
        "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries, "
        "str correction, bool sparse, int chunk_bytes, str precision) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        _run_forward,
        _fake_forward,
        _setup,
        _backward,
    )
