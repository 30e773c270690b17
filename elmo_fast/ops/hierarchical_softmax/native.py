"""hierarchical_softmax in C++: path by path over the table itself; no row of it is gathered first."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def tree(counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, nodes, codes = torch.ops.elmo_fast.huffman_tree(counts, order)
    return first, nodes, codes


def run(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, first: Tensor, nodes: Tensor, codes: Tensor, *,
    longest: int, sparse: bool, precision: str,
) -> Tensor:  # fmt: skip
    arguments = hidden, targets, weight, bias, first, nodes, codes, longest, precision, sparse
    losses: Tensor = torch.ops.elmo_fast.hierarchical_softmax(*arguments)[0]
    return losses


def _fake_tree(counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    steps = torch.library.get_ctx().new_dynamic_size()
    return counts.new_empty(counts.shape[0] + 1), counts.new_empty(steps), counts.new_empty(steps, dtype=torch.uint8)


def _fake(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, first: Tensor, nodes: Tensor, codes: Tensor,
    longest: int, precision: str, sparse: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return hidden.new_empty(hidden.shape[0]), hidden.new_empty(hidden.shape[0], longest)


def _fake_backward(
    grad: Tensor, hidden: Tensor, targets: Tensor, weight: Tensor, slopes: Tensor, first: Tensor, nodes: Tensor,
    precision: str, sparse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    passed = torch.library.get_ctx().new_dynamic_size() if sparse else weight.shape[0]
    ids = first.new_empty(passed if sparse else 0)
    return hidden.new_empty(hidden.shape), ids, hidden.new_empty(passed, hidden.shape[1]), hidden.new_empty(passed)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden, targets, weight, _, first, nodes, _, _, ctx.precision, ctx.sparse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, targets, weight, output[1], first, nodes)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 10
    d_hidden, ids, d_weight, d_bias = torch.ops.elmo_fast.hierarchical_softmax_backward(
        grad, *ctx.saved_tensors, ctx.precision, ctx.sparse
    )
    if ctx.sparse:
        words = ctx.saved_tensors[2].shape[0]
        d_weight, d_bias = (_sparse(ids, rows, words) for rows in (d_weight, d_bias))
    return d_hidden, None, d_weight, d_bias, *(None,) * 6


def _sparse(ids: Tensor, rows: Tensor, words: int) -> Tensor:
    """The gradient of a table from rows of the distinct words `ids`, in order."""
    options: dict[str, Any] = {"device": rows.device, "is_coalesced": True, "check_invariants": False}
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, (words, *rows.shape[1:]), **options)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::huffman_tree", _fake_tree)
    torch.library.register_fake("elmo_fast::hierarchical_softmax", _fake)
    torch.library.register_fake("elmo_fast::hierarchical_softmax_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::hierarchical_softmax", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::hierarchical_softmax_backward")
