"""Triton: each layer read once for all mixes, dropout within; float32 arithmetic, also on 16-bit layers."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops.scalar_mix import host
from elmo_fast.ops.scalar_mix.op import ScalarMixArguments

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


def run(a: ScalarMixArguments) -> Tensor:
    factors = a.gammas.float().unsqueeze(1) * torch.softmax(a.scalars.float(), dim=1)
    return _forward_op(a.layers, factors, a.statistics_mask, a.seed, a.layer_norm, a.eps, a.dropout)[0]


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    first = a.layers[0]
    found = (3, len(a.layers)) if a.layer_norm else (0,)
    return first.new_empty(a.factors.shape[0], *first.shape), first.new_empty(found, dtype=torch.float64)


_triton.define(
    "scalar_mix_backward(Tensor grad, Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, "
    "Tensor statistics, bool layer_norm, float dropout, bool need_layers, bool need_factors) "
    "-> (Tensor[] layers, Tensor factors)",
    host.backward,
)
_forward_op = _triton.define(
    "scalar_mix(Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, bool layer_norm, float eps, "
    "float dropout) -> (Tensor mixes, Tensor statistics)",
    host.forward,
    _fake,
    Backward(),
)
