"""One clip over all gradients, dense and sparse."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from elmo_fast.ops import RowOrder, clip_scale, merged_square_norm, row_order, square_norm
from elmo_fast.ops._table_rows import coalesced


def host_reads_norm(parameters: Iterable[Tensor], backend: str) -> bool:
    """Whether the host reads the norm: on the CPU, where reading a number waits for nothing, with "auto"."""
    return backend == "auto" and all(p.device.type == "cpu" for p in parameters)


def global_norm(
    parameters: Sequence[Tensor], backend: str, tables: Sequence[Sequence[Tensor]] = ()
) -> tuple[Tensor, dict[Tensor, RowOrder]]:
    """The norm of all gradients together, [] on their device, and the orders in which sparse ones were merged.

    tables: parameters whose gradients have the same ids, which are then sorted once.
    """
    if not parameters:
        return torch.zeros(()), {}
    squares: list[Tensor] = []
    orders: dict[Tensor, RowOrder] = {}
    others = {parameter: table for table in tables for parameter in table}
    dense: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            ids, words = gradient._indices()[0], parameter.shape[0]
            known = [orders[each] for each in others.get(parameter, ()) if each in orders]
            order = orders[parameter] = known[0] if known else row_order(ids, words)
            squares.append(merged_square_norm(ids, gradient._values(), words, order=order, backend=backend))
        else:
            dense.setdefault((gradient.device, gradient.dtype), []).append(gradient)
    squares += [square_norm(gradients, backend=backend) for gradients in dense.values()]
    return torch.stack([square.to(squares[0]) for square in squares]).sum().sqrt(), orders


@torch.no_grad()
def clip_by_global_norm(
    params: Iterable[torch.nn.Parameter], max_norm: float, *, backend: str = "auto"
) -> float | Tensor:
    """Scales all gradients in place by `max_norm / max(norm, max_norm)` and returns the norm before.

    norm: the root of the sum of squares of all gradients together; a sparse gradient counts with its merged rows. On
    the CPU the norm is a number, and sparse gradients are left coalesced. On a GPU it is a [] tensor that nothing has
    waited for, sparse gradients stay as they are, and a norm that is not finite makes all gradients zero.
    """
    trained = [parameter for parameter in params if parameter.grad is not None]
    if host_reads_norm(trained, backend):
        norm = norm_on_host(trained)
        if norm > max_norm:
            torch._foreach_mul_(_values(trained), max_norm / norm)
        return norm
    total, _ = global_norm(trained, backend)
    scale, lost = clip_scale(total, max_norm), ~total.isfinite()
    for values in _values(trained):
        values.mul_(scale).masked_fill_(lost, 0)
    return total


def norm_on_host(parameters: Sequence[Tensor]) -> float:
    """The norm of all gradients together; sparse ones are left coalesced."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = coalesced(parameter.grad)
    return math.sqrt(sum(square_norm([values]).item() for values in _values(parameters)))


def _values(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The numbers of the gradients, of sparse ones their rows."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]
