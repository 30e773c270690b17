"""One clip over all gradients, dense and sparse."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from elmo_fast.ops import RowOrder, clip_scale, merged_square_norm, row_order, square_norm


def uses_torch_update(parameters: Iterable[Tensor], backend: str) -> bool:
    """Whether torch's own update and norm are used: on the CPU, where reading a number forces no sync, with "auto"."""
    return backend == "auto" and all(p.device.type == "cpu" for p in parameters)


def global_norm(parameters: Sequence[Tensor], backend: str) -> tuple[Tensor, dict[Tensor, RowOrder]]:
    """The norm of all gradients together, [] on their device, and the orders in which sparse ones were merged."""
    if not parameters:
        return torch.zeros(()), {}
    squares, orders = [], {}
    dense: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            ids, words = gradient._indices()[0], parameter.shape[0]
            order = orders[parameter] = row_order(ids, words)
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
    if uses_torch_update(trained, backend):
        return _plain_clip(trained, max_norm)
    norm, _ = global_norm(trained, backend)
    scale, lost = clip_scale(norm, max_norm), ~norm.isfinite()
    for parameter in trained:
        gradient = parameter.grad
        assert gradient is not None
        values = gradient._values() if gradient.is_sparse else gradient
        values.mul_(scale).masked_fill_(lost, 0)
    return norm


def _plain_clip(parameters: Sequence[Tensor], max_norm: float) -> float:
    values = []
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            parameter.grad = gradient = gradient.coalesce()
            values.append(gradient.values())
        else:
            values.append(gradient)
    norm = math.sqrt(sum(square_norm([each]).item() for each in values))
    if norm > max_norm:
        torch._foreach_mul_(values, max_norm / norm)
    return norm
