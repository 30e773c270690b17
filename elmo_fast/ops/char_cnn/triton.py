"""Triton: one kernel for all widths forwards, which keeps the largest window and never stores the others."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton

if _triton.WHY_NOT is None:
    from elmo_fast.ops.char_cnn import host

unsupported = _triton.unsupported


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
    """As elmo_fast.ops.char_cnn."""
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (embedding, *weights, *biases))
    features: Tensor = _forward_op(
        ids, embedding, list(weights), list(biases), count, activation == "tanh", precision, save
    )[0]
    return features


def _forward(
    ids: Tensor, embedding: Tensor, weights: list[Tensor], biases: list[Tensor], count: Tensor | None,
    tanh: bool, precision: str, save: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if ids.shape[1] > torch.iinfo(torch.int16).max:
        raise RuntimeError(f"char_cnn: more slots than an int16 counts: {ids.shape[1]}")
    return host.forward(ids, embedding, weights, biases, count, tanh, precision, save)


def _fake(
    ids: Tensor, embedding: Tensor, weights: list[Tensor], biases: list[Tensor], count: Tensor | None,
    tanh: bool, precision: str, save: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    filters = sum(weight.shape[0] for weight in weights)
    features = embedding.new_empty(ids.shape[0], filters)
    return features, features.new_empty(ids.shape[0] if save else 0, filters, dtype=torch.int16)


def _backward(
    grad: Tensor, features: Tensor, winners: Tensor, ids: Tensor, embedding: Tensor, weights: list[Tensor],
    biases: list[Tensor], count: Tensor | None, tanh: bool, precision: str, need_embedding: bool, need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
    if winners.shape != features.shape:
        raise RuntimeError("char_cnn_backward: the forward pass was told to save nothing")
    return host.backward(
        grad, features, winners, ids, embedding, weights, biases, count, tanh, precision, need_embedding, need_weights
    )


def _fake_backward(
    grad: Tensor, features: Tensor, winners: Tensor, ids: Tensor, embedding: Tensor, weights: list[Tensor],
    biases: list[Tensor], count: Tensor | None, tanh: bool, precision: str, need_embedding: bool, need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
    d_embedding = embedding.new_empty(embedding.shape if need_embedding else 0)
    needed = weights if need_weights else []
    return d_embedding, [w.new_empty(w.shape) for w in needed], [w.new_empty(w.shape[0]) for w in needed]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ids, embedding, weights, biases, count, *ctx.options, _ = inputs
    ctx.counted = count is not None
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*output, ids, embedding, *weights, *biases, *([count] if ctx.counted else []))


def _differentiate(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    features, winners, ids, embedding, *rest = ctx.saved_tensors
    count = rest.pop() if ctx.counted else None
    weights, biases = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    need_embedding = ctx.needs_input_grad[1]
    need_weights = any(ctx.needs_input_grad[2]) or any(ctx.needs_input_grad[3])
    d_embedding, d_weights, d_biases = _backward_op(
        grad, features, winners, ids, embedding, weights, biases, count, *ctx.options, need_embedding, need_weights
    )
    nothing = [None] * len(weights)
    return (
        None,
        d_embedding if need_embedding else None,
        d_weights if need_weights else nothing,
        d_biases if need_weights else nothing,
        *[None] * 4,
    )


if _triton.WHY_NOT is None:
    _backward_op = _triton.define(
        "char_cnn_backward(Tensor grad, Tensor features, Tensor winners, Tensor ids, Tensor embedding, "
        "Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, str precision, bool need_embedding, "
        "bool need_weights) -> (Tensor d_embedding, Tensor[] d_weights, Tensor[] d_biases)",
        _backward,
        _fake_backward,
    )
    _forward_op = _triton.define(
        "char_cnn(Tensor ids, Tensor embedding, Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, "
        "str precision, bool save) -> (Tensor features, Tensor winners)",
        _forward,
        _fake,
        _setup,
        _differentiate,
    )
