"""Forward as in Triton; backward in CUDA C++, which adds each gradient once per position of its window, not once per
number of the window's embeddings (csrc/char_cnn/sums.h)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native, _triton
from elmo_fast.ops.char_cnn import triton

MOST_WIDTHS, MOST_CHARACTERS = 32, 1056  # what one launch describes; four passes over the rows


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """What Triton refuses and what the extension lacks."""
    return _native.cuda_unsupported(device, dtype, precision) or triton.unsupported(device, dtype, precision)


def run(
    ids: Tensor,
    embedding: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    *,
    activation: str,
    precision: str,
    count: Tensor | None,
) -> Tensor:
    """As elmo_fast.ops.char_cnn. Where the alphabet is so large that most sums would be empty, Triton's backward."""
    tensors = (embedding, *weights, *biases)
    save = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if not save or len(weights) > MOST_WIDTHS or embedding.shape[0] > MOST_CHARACTERS:
        return triton.run(ids, embedding, weights, biases, activation=activation, precision=precision, count=count)
    tanh = activation == "tanh"
    features: Tensor = _forward_op(ids, embedding, list(weights), list(biases), count, tanh, precision, save)[0]
    return features


def _fake_backward(
    grad: Tensor, features: Tensor, winners: Tensor, ids: Tensor, embedding: Tensor, weights: list[Tensor],
    count: Tensor | None, tanh: bool, precision: str, need_embedding: bool, need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
    d_embedding = embedding.new_empty(embedding.shape if need_embedding else 0)
    needed = weights if need_weights else []
    return d_embedding, [w.new_empty(w.shape) for w in needed], [w.new_empty(w.shape[0]) for w in needed]


def _differentiate(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    features, winners, ids, embedding, *rest = ctx.saved_tensors
    count = rest.pop() if ctx.counted else None
    weights = rest[: len(rest) // 2]
    need_embedding = ctx.needs_input_grad[1]
    need_weights = any(ctx.needs_input_grad[2]) or any(ctx.needs_input_grad[3])
    d_embedding, d_weights, d_biases = torch.ops.elmo_fast.char_cnn_cuda_backward(
        grad, features, winners, ids, embedding, weights, count, *ctx.options, need_embedding, need_weights
    )
    nothing = [None] * len(weights)
    return (
        None,
        d_embedding if need_embedding else None,
        d_weights if need_weights else nothing,
        d_biases if need_weights else nothing,
        *[None] * 4,
    )


if _native.C is not None:
    torch.library.register_fake("elmo_fast::char_cnn_cuda_backward", _fake_backward)
    _native.once_differentiable("elmo_fast::char_cnn_cuda_backward")
if _triton.WHY_NOT is None:
    _forward_op = _triton.define(
        "char_cnn_for_cuda(Tensor ids, Tensor embedding, Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, "
        "str precision, bool save) -> (Tensor features, Tensor winners)",
        triton._forward,
        triton._fake,
        triton._setup,
        _differentiate,
    )
