"""sampled_softmax in Triton: logits that are never written, their gradient in chunks that stay in L2, no host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._table_rows import table_gradient
from elmo_fast.ops._triton import define, operand_dtype
from elmo_fast.ops.sampled_softmax import host
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def run(a: SampledSoftmaxArguments) -> Tensor:
    tries, device = a.tries, a.hidden.device
    if isinstance(tries, Tensor):
        tries = tries.to(device, torch.int64, non_blocking=True)
    else:
        tries = torch.full((), tries, dtype=torch.int64, device=device)
    return _forward(*a._replace(tries=tries))[0]


def _fake(a: Any) -> tuple[Tensor, ...]:
    (count, width), size, dtype, of = a.hidden.shape, a.samples.shape[0], operand_dtype(a.precision), a.hidden.new_empty
    return (
        of(count), of(count), of(count, width, dtype=dtype), of(size, width, dtype=dtype), of(size),
        a.targets.new_empty(count + size),
    )  # fmt: skip


def _shapes(a: Any) -> dict[str, Any]:
    (count, width), words = a.operands.shape, a.ids.shape[0]
    return {"hidden": (count, width), "weight": (words, width), "bias": (words,)}


def _tables(a: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """The gradients of weight and bias from those of the rows of the words `ids`."""
    shapes = {"weight": a.weight.shape, "bias": a.weight.shape[:1]}
    return rows | {name: table_gradient(shape, a.ids, rows[name], a.sparse) for name, shape in shapes.items()}


def _run_forward(*arguments: Any) -> tuple[Tensor, ...]:
    taken = *arguments[:7], arguments[-1]  # less `sparse` and `chunk_bytes`
    return host.forward(*taken)


def _run_backward(*arguments: Any) -> tuple[Tensor, ...]:
    taken = *arguments[:-2], arguments[-1]  # less `sparse`
    return host.backward(*taken)


define(
    "sampled_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor rows, "
    "Tensor offsets, Tensor ids, Tensor weight, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    _run_backward,
)
_forward = define(
    "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries, "
    "str correction, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor totals, Tensor operands, Tensor rows, Tensor offsets, Tensor ids)",
    _run_forward,
    _fake,
    Backward(shapes=_shapes, finish=_tables),
)
