"""Triton: each layer read once for all mixes, dropout within; float32 arithmetic, also on 16-bit layers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops.scalar_mix import host

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """As the other Triton backends, but layers may be 16-bit: nothing is multiplied by tensor cores."""
    if dtype not in _DTYPES:
        name = str(dtype).removeprefix("torch.")
        return (
            _triton.unsupported(device, torch.float32, precision)
            or f"this Triton kernel takes layers in float32, float16 or bfloat16, not {name}"
        )
    if dtype == torch.bfloat16:
        precision = "bfloat16"
    return _triton.unsupported(device, torch.float32, precision)


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
    factors = gammas.float().unsqueeze(1) * torch.softmax(scalars.float(), dim=1)
    y: Tensor = _forward_op(list(layers), factors, statistics_mask, seed, layer_norm, eps, dropout)[0]
    return y


def _forward(
    layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    layer_norm: bool,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    counted = None if counted is None else counted.contiguous()
    return host.forward(
        [layer.contiguous() for layer in layers], factors.contiguous(), counted, seed, layer_norm, eps, dropout
    )


def _fake(
    layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    layer_norm: bool,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    found = (3, len(layers)) if layer_norm else (0,)
    return layers[0].new_empty(factors.shape[0], *layers[0].shape), layers[0].new_empty(found, dtype=torch.float64)


def _backward_run(
    grad: Tensor,
    layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    found: Tensor,
    layer_norm: bool,
    dropout: float,
    need_layers: bool,
    need_factors: bool,
) -> tuple[list[Tensor], Tensor]:
    return host.backward(
        grad.contiguous(),
        [layer.contiguous() for layer in layers],
        factors.contiguous(),
        None if counted is None else counted.contiguous(),
        seed,
        found,
        layer_norm,
        dropout,
        need_layers,
        need_factors,
    )


def _fake_backward(
    grad: Tensor,
    layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    found: Tensor,
    layer_norm: bool,
    dropout: float,
    need_layers: bool,
    need_factors: bool,
) -> tuple[list[Tensor], Tensor]:
    return (
        [layer.new_empty(layer.shape) for layer in layers] if need_layers else [],
        factors.new_empty(factors.shape if need_factors else (0,)),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    layers, factors, counted, seed, ctx.layer_norm, _, ctx.dropout = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(factors, counted, seed, output[1], *layers)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    factors, counted, seed, found, *layers = ctx.saved_tensors
    need_layers, need_factors = any(ctx.needs_input_grad[0]), ctx.needs_input_grad[1]
    d_layers, d_factors = _backward_op(
        grad, layers, factors, counted, seed, found, ctx.layer_norm, ctx.dropout, need_layers, need_factors
    )
    return d_layers if need_layers else [None] * len(layers), d_factors if need_factors else None, *[None] * 5


_backward_op = _triton.define(
    "scalar_mix_backward(Tensor grad, Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, Tensor found, "
    "bool layer_norm, float dropout, bool need_layers, bool need_factors) -> (Tensor[] layers, Tensor factors)",
    _backward_run,
    _fake_backward,
)
_forward_op = _triton.define(
    "scalar_mix(Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, bool layer_norm, float eps, "
    "float dropout) -> (Tensor mixes, Tensor statistics)",
    _forward,
    _fake,
    _setup,
    _backward,
)
