"""C++ on the CPU: only windows that differ are computed, backward touches one window per feature."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native
from elmo_fast.ops._checks import given
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.char_cnn.reference import masked

MOST_SLOTS = torch.iinfo(torch.int16).max  # a winner, the first slot of a window, is kept as such a number


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
    if ids.shape[1] > MOST_SLOTS:
        raise ElmoFastError(
            f"char_cnn: the C++ kernel takes ids of at most {MOST_SLOTS:,} slots; got {given(ids)}; "
            'use backend="reference" or cut the words'
        )
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (embedding, *weights, *biases))
    features: Tensor = torch.ops.elmo_fast.char_cnn(
        ids, embedding, list(weights), list(biases), activation == "tanh", precision, save
    )[0]
    return masked(features, count)


def _fake(
    ids: Tensor,
    embedding: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    tanh: bool,
    precision: str,
    save: bool,
) -> tuple[Tensor, Tensor]:
    filters = sum(weight.shape[0] for weight in weights)
    features = embedding.new_empty(ids.shape[0], filters)
    return features, features.new_empty(ids.shape[0] if save else 0, filters, dtype=torch.int16)


def _fake_backward(
    grad: Tensor,
    features: Tensor,
    winners: Tensor,
    ids: Tensor,
    embedding: Tensor,
    weights: list[Tensor],
    tanh: bool,
    precision: str,
    need_embedding: bool,
    need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    d_embedding = embedding.new_empty(embedding.shape if need_embedding else 0)
    if not need_weights:
        return d_embedding, [], []
    return d_embedding, [w.new_empty(w.shape) for w in weights], [w.new_empty(w.shape[0]) for w in weights]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ids, embedding, weights, _, ctx.tanh, ctx.precision, _ = inputs
    ctx.save_for_backward(*output, ids, embedding, *weights)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    features, winners, ids, embedding, *weights = ctx.saved_tensors
    need_embedding = ctx.needs_input_grad[1]
    need_weights = any(ctx.needs_input_grad[2]) or any(ctx.needs_input_grad[3])
    d_embedding, d_weights, d_biases = torch.ops.elmo_fast.char_cnn_backward(
        grad, features, winners, ids, embedding, weights, ctx.tanh, ctx.precision, need_embedding, need_weights
    )
    nothing = [None] * len(weights)
    return (
        None,
        d_embedding if need_embedding else None,
        d_weights if need_weights else nothing,
        d_biases if need_weights else nothing,
        None,
        None,
        None,
    )


if _native.C is not None:
    torch.library.register_fake("elmo_fast::char_cnn", _fake)
    torch.library.register_fake("elmo_fast::char_cnn_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::char_cnn", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::char_cnn_backward")
