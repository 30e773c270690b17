"""scalar_mix in C++: layers read once for all mixes; statistics and sums in float64, alike for any thread count."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.scalar_mix.dropout import dropped


def run(
    layers: Sequence[Tensor],
    scalars: Tensor,
    gammas: Tensor,
    *,
    layer_norm: bool,
    statistics_mask: Tensor | None,
    eps: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    coefficients = gammas.unsqueeze(1) * torch.softmax(scalars, dim=1)
    counted = None if statistics_mask is None else statistics_mask.contiguous()
    mixes: Tensor = torch.ops.elmo_fast.scalar_mix(list(layers), coefficients, counted, layer_norm, eps)[0]
    return dropped(mixes, dropout, seed)


def _fake(
    layers: list[Tensor], coefficients: Tensor, counted: Tensor | None, layer_norm: bool, eps: float
) -> tuple[Tensor, Tensor]:
    mixes = layers[0].new_empty(coefficients.shape[0], *layers[0].shape)
    return mixes, layers[0].new_empty(2, len(layers), dtype=torch.float64)


def _fake_sums(grad: Tensor, layers: list[Tensor], statistics: Tensor) -> Tensor:
    return statistics.new_empty(grad.shape[0], len(layers) + 1)


def _fake_backward(grad: Tensor, layers: list[Tensor], *_: Any) -> list[Tensor]:
    return [layer.new_empty(layer.shape) for layer in layers]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    layers, coefficients, counted, ctx.layer_norm, _ = inputs
    ctx.save_for_backward(coefficients, counted, output[1], *layers)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    coefficients, counted, statistics, *layers = ctx.saved_tensors
    need_layers, need_coefficients = ctx.needs_input_grad[:2]
    d_layers: list[Tensor | None] = [None] * len(layers)
    sums = torch.ops.elmo_fast.scalar_mix_sums(grad, layers, statistics)
    if any(need_layers):
        d_layers = torch.ops.elmo_fast.scalar_mix_backward(
            grad, layers, coefficients, counted, statistics, sums, ctx.layer_norm
        )
    d_coefficients = sums[:, :-1].to(coefficients.dtype) if need_coefficients else None
    return d_layers, d_coefficients, None, None, None


if _native.C is not None:
    torch.library.register_fake("elmo_fast::scalar_mix", _fake)
    torch.library.register_fake("elmo_fast::scalar_mix_sums", _fake_sums)
    torch.library.register_fake("elmo_fast::scalar_mix_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::scalar_mix", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::scalar_mix_sums")
    _native.once_differentiable("elmo_fast::scalar_mix_backward")
