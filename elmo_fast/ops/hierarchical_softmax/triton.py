"""hierarchical_softmax in Triton: each row's path over the table itself, one launch each way; no host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, define, explained, launch, operand_dtype
from elmo_fast.ops.hierarchical_softmax import kernels
from elmo_fast.ops.hierarchical_softmax.op import HierarchicalSoftmaxArguments


def run(a: HierarchicalSoftmaxArguments) -> Tensor:
    return _op(*a)[0]


def _tile(width: int) -> dict[str, int]:
    """Nodes and columns of one step of a program: 4096 numbers of the table at a time, 32 per thread."""
    columns = ceil_power_of_two(width, 16, 512)
    return {"STEPS": min(16, 4096 // columns), "WIDTH": columns}


def _forward(a: Any) -> tuple[Tensor, ...]:
    """losses [N]; for backward: slopes of all steps [N, longest], operands of hidden [N, D], nodes [N longest]."""
    (count, width), device, dtype = a.hidden.shape, a.hidden.device, operand_dtype(a.precision)
    per_row = width * dtype.itemsize + 12 * a.longest + 4
    with explained("hierarchical_softmax", "rows", count * per_row, per_row, count, device):
        losses = torch.empty(count, dtype=torch.float32, device=device)
        slopes = torch.empty(count, a.longest, dtype=torch.float32, device=device)
        operands = torch.empty(count, width, dtype=dtype, device=device)
        ids = torch.empty(count * a.longest, dtype=torch.int64, device=device)
    tree = a.first.contiguous(), a.nodes.contiguous(), a.codes.contiguous()
    launch(
        kernels.paths, (count,), a.hidden, *a.hidden.stride(), a.targets, a.targets.stride(0), a.weight,
        *a.weight.stride(), a.bias, a.bias.stride(0), *tree, operands, losses, slopes, ids, len(a.first) - 1,
        len(a.nodes), len(a.weight), width, a.longest, **_tile(width),
    )  # fmt: skip
    return losses, slopes, operands, ids


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """d_hidden [N, D]; d_rows [N longest, D] and d_offsets [N longest] of the nodes `ids`, all float32."""
    (count, longest), width, device = a.slopes.shape, a.operands.shape[1], a.grad.device
    per_row = 4 * width + 4 * longest * (width + 1)
    with explained("hierarchical_softmax", "rows", count * per_row, per_row, count, device):
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_rows = torch.empty(count * longest, width, dtype=torch.float32, device=device)
        d_offsets = torch.empty(count * longest, dtype=torch.float32, device=device)
    tile = _tile(width)
    launch(
        kernels.path_gradients, (count, max(1, cdiv(width, tile["WIDTH"]))), a.grad, a.grad.stride(0), a.slopes,
        a.operands, a.ids, a.weight, *a.weight.stride(), d_hidden, d_rows, d_offsets, width, longest, **tile,
    )  # fmt: skip
    return d_hidden, d_rows, d_offsets


def _fake(a: Any) -> tuple[Tensor, ...]:
    (count, width), of = a.hidden.shape, a.hidden.new_empty
    operands = of(count, width, dtype=operand_dtype(a.precision))
    return of(count), of(count, a.longest), operands, a.nodes.new_empty(count * a.longest)


define(
    "hierarchical_softmax_backward(Tensor grad, Tensor slopes, Tensor operands, Tensor ids, Tensor weight, bool sparse)"
    " -> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "hierarchical_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor first, Tensor nodes, "
    "Tensor codes, int longest, str precision, bool sparse) "
    "-> (Tensor losses, Tensor slopes, Tensor operands, Tensor ids)",
    _forward,
    _fake,
    Backward(shapes=_softmax_triton.row_shapes, finish=_softmax_triton.tables),
)
