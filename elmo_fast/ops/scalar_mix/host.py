"""scalar_mix on the GPU: what is allocated and launched, up to four layers and four mixes at a time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._triton import explained
from elmo_fast.ops.scalar_mix import kernels
from elmo_fast.ops.scalar_mix.dropout import LANES, threshold

# What one launch takes. Backward keeps a sum per element, layer and mix in registers.
LAYERS, MIXES, BACKWARD_MIXES = 4, 4, 2
# Eight blocks for each of 132 multiprocessors: as many as are there at once, and partial results that one block adds.
PROGRAMS = 1024


def four(tensors: Sequence[Tensor | None], first: int) -> list[Tensor | None]:
    """Tensors first..first+3, None where there are none."""
    found = list(tensors[first : first + LAYERS])
    return found + [None] * (LAYERS - len(found))


def _contiguous(a: Any) -> Any:
    counted = None if a.counted is None else a.counted.contiguous()
    return a._replace(layers=[x.contiguous() for x in a.layers], factors=a.factors.contiguous(), counted=counted)


def statistics(a: Any) -> Tensor:
    """[3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements. Reads every layer once."""
    layers = a.layers
    number, width = len(layers), layers[0].shape[-1]
    positions = layers[0].numel() // max(1, width)
    columns = _triton.ceil_power_of_two(width, 16, 512)
    rows = 2048 // columns
    tiles = _triton.cdiv(positions, rows) * _triton.cdiv(width, columns)
    programs = min(tiles, PROGRAMS)
    partial = layers[0].new_empty(2 * number + 1, programs, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        _triton.launch(
            kernels.moments, (programs,), *four(layers, first), a.counted, partial, positions, width, tiles,
            FIRST=first, L=number, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
    found = layers[0].new_empty(3, number, dtype=torch.float64)
    _triton.launch(kernels.statistics, (number,), partial, found, programs, a.eps, L=number, BLOCK=PROGRAMS)
    return found


def forward(a: Any) -> tuple[Tensor, Tensor]:
    """The mixes, and the statistics ([0] without a layer norm); `factors` [M, L] float32, any strides."""
    a = _contiguous(a)
    layers, n, number, mixes = a.layers, a.layers[0].numel(), len(a.layers), a.factors.shape[0]
    rows = layers[0].shape[0] if layers[0].dim() > 1 else 1
    size = mixes * n * layers[0].itemsize
    with explained("scalar_mix", "sentences", size, size // max(1, rows), rows, layers[0].device):
        y = layers[0].new_empty(mixes, *layers[0].shape)
        # More layers than a kernel takes: what is not final stays in float32.
        rest = number > LAYERS and y.dtype != torch.float32
        partial = torch.empty_like(y, dtype=torch.float32) if rest else y
    found = statistics(a) if a.layer_norm else layers[0].new_empty(0, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        last = first + LAYERS >= number
        for mix in range(0, mixes, MIXES):
            _triton.launch(
                kernels.forward, (_triton.cdiv(n, (4 * LANES)),),
                *four(layers, first), a.factors, found if a.layer_norm else None, partial if first else None,
                a.seed if last else None, *_dropout(a), y if last else partial, n, mix, mixes,
                FIRST=first, L=number, MP=_triton.ceil_power_of_two(mixes, 1, MIXES), LANES=LANES,
            )  # fmt: skip
    return y, found


def _dropout(a: Any) -> tuple[int, float]:
    """Threshold and scale, as the kernels take them."""
    return threshold(a.dropout), 1 / (1 - a.dropout)


def backward(a: Any) -> tuple[list[Tensor], Tensor]:
    """Gradients of the layers (none where not needed) and of the factors ([0] where not needed)."""
    a = _contiguous(a)._replace(grad=a.grad.contiguous())
    number, mixes = len(a.layers), a.factors.shape[0]
    fused = a.need_layers and a.need_factors and not a.layer_norm
    d_layers = [torch.empty_like(layer) for layer in a.layers] if a.need_layers else []
    sums = None
    if a.need_factors or a.layer_norm:
        programs = min(_triton.cdiv(a.layers[0].numel(), (4 * LANES)), PROGRAMS)
        partial = a.factors.new_empty(programs, mixes, number + 1)
        passes(a, d_layers if fused else [], None, partial)
        sums = partial.sum(0, dtype=torch.float64)
    if a.need_layers and not fused:
        passes(a, d_layers, sums, None)
    if sums is None or not a.need_factors:
        return d_layers, a.factors.new_empty(0)
    return d_layers, sums.narrow(1, 0, number).to(a.factors.dtype)


def passes(a: Any, d_layers: list[Tensor], sums: Tensor | None, partial: Tensor | None) -> None:
    """One pass over gradients and layers for every four layers and two mixes: sums, gradients or both."""
    layers, number, mixes, n = a.layers, len(a.layers), a.factors.shape[0], a.layers[0].numel()
    blocks = _triton.cdiv(n, (4 * LANES))
    # More mixes than a kernel takes: what is not final stays in float32.
    rest = a.factors.new_empty(LAYERS, n) if d_layers and mixes > BACKWARD_MIXES else None
    for first in range(0, number, LAYERS):
        for mix in range(0, mixes, BACKWARD_MIXES):
            last = mix + BACKWARD_MIXES >= mixes
            to = four(d_layers, first)
            if rest is not None and not last:
                to = [None if d is None else rest.select(0, k) for k, d in enumerate(to)]
            _triton.launch(
                kernels.backward, (min(blocks, PROGRAMS),),
                a.grad, *four(layers, first), *to, rest if mix else None, a.factors, a.counted,
                a.statistics if a.layer_norm else None, sums, a.seed, *_dropout(a), partial,
                n, max(1, layers[0].shape[-1]), blocks, mix, mixes,
                FIRST=first, L=number, SUMS=partial is not None,
                MP=_triton.ceil_power_of_two(mixes, 1, BACKWARD_MIXES), LANES=LANES,
            )  # fmt: skip
