"""scalar_mix on the GPU: what is allocated and launched, up to four layers and four mixes at a time."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._memory import explained
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


def drop_arguments(dropout: float, seed: Tensor | None) -> tuple[Tensor | None, int, float]:
    """Seed, threshold and scale, as the kernels take them."""
    return seed, threshold(dropout), 1 / (1 - dropout)


def statistics(layers: list[Tensor], counted: Tensor | None, eps: float) -> Tensor:
    """[3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements. Reads every layer once."""
    number, width = len(layers), layers[0].shape[-1]
    positions = layers[0].numel() // max(1, width)
    columns = _triton.ceil_power_of_two(width, 16, 512)
    rows = 2048 // columns
    tiles = math.ceil(positions / rows) * math.ceil(width / columns)
    programs = min(tiles, PROGRAMS)
    partial = layers[0].new_empty(2 * number + 1, programs, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        _triton.launch(
            kernels.moments, (programs,), *four(layers, first), counted, partial, positions, width, tiles,
            FIRST=first, L=number, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
    found = layers[0].new_empty(3, number, dtype=torch.float64)
    _triton.launch(kernels.statistics, (number,), partial, found, programs, eps, L=number, BLOCK=PROGRAMS)
    return found


def _contiguous(
    layers: list[Tensor], factors: Tensor, counted: Tensor | None
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    counted = None if counted is None else counted.contiguous()
    return [layer.contiguous() for layer in layers], factors.contiguous(), counted


def forward(
    layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    layer_norm: bool,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The mixes, and the statistics ([0] without a layer norm); `factors` [M, L] float32, any strides."""
    layers, factors, counted = _contiguous(layers, factors, counted)
    n, number, mixes = layers[0].numel(), len(layers), factors.shape[0]
    rows = layers[0].shape[0] if layers[0].dim() > 1 else 1
    size = mixes * n * layers[0].itemsize
    with explained("scalar_mix", "sentences", size, size // max(1, rows), rows, layers[0].device):
        y = layers[0].new_empty(mixes, *layers[0].shape)
        # More layers than a kernel takes: what is not final stays in float32.
        rest = number > LAYERS and y.dtype != torch.float32
        partial = torch.empty_like(y, dtype=torch.float32) if rest else y
    found = statistics(layers, counted, eps) if layer_norm else layers[0].new_empty(0, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        last = first + LAYERS >= number
        for mix in range(0, mixes, MIXES):
            _triton.launch(
                kernels.forward, (-(-n // (4 * LANES)),),
                *four(layers, first), factors, found if layer_norm else None, partial if first else None,
                *drop_arguments(dropout, seed if last else None), y if last else partial, n, mix, mixes,
                FIRST=first, L=number, MP=_triton.ceil_power_of_two(mixes, 1, MIXES), LANES=LANES,
            )  # fmt: skip
    return y, found


def backward(
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
    """Gradients of the layers (none where not needed) and of the factors ([0] where not needed)."""
    grad = grad.contiguous()
    layers, factors, counted = _contiguous(layers, factors, counted)
    number, mixes = len(layers), factors.shape[0]
    fused = need_layers and need_factors and not layer_norm
    d_layers = [torch.empty_like(layer) for layer in layers] if need_layers else []
    sums = None
    if need_factors or layer_norm:
        programs = min(-(-layers[0].numel() // (4 * LANES)), PROGRAMS)
        partial = factors.new_empty(programs, mixes, number + 1)
        passes(grad, layers, d_layers if fused else [], factors, counted, seed, dropout, found, None, partial)
        sums = partial.sum(0, dtype=torch.float64)
    if need_layers and not fused:
        passes(grad, layers, d_layers, factors, counted, seed, dropout, found, sums, None)
    if sums is None or not need_factors:
        return d_layers, factors.new_empty(0)
    return d_layers, sums.narrow(1, 0, number).to(factors.dtype)


def passes(
    grad: Tensor,
    layers: list[Tensor],
    d_layers: list[Tensor],
    factors: Tensor,
    counted: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    found: Tensor,
    sums: Tensor | None,
    partial: Tensor | None,
) -> None:
    """One pass over gradients and layers for every four layers and two mixes: sums, gradients or both."""
    number, mixes, n = len(layers), factors.shape[0], layers[0].numel()
    blocks = -(-n // (4 * LANES))
    # More mixes than a kernel takes: what is not final stays in float32.
    rest = factors.new_empty(LAYERS, n) if d_layers and mixes > BACKWARD_MIXES else None
    for first in range(0, number, LAYERS):
        for mix in range(0, mixes, BACKWARD_MIXES):
            last = mix + BACKWARD_MIXES >= mixes
            to = four(d_layers, first)
            if rest is not None and not last:
                to = [None if d is None else rest.select(0, k) for k, d in enumerate(to)]
            _triton.launch(
                kernels.backward, (min(blocks, PROGRAMS),),
                grad, *four(layers, first), *to, rest if mix else None, factors, counted,
                found if found.dim() == 2 else None, sums, *drop_arguments(dropout, seed), partial,
                n, max(1, layers[0].shape[-1]), blocks, mix, mixes,
                FIRST=first, L=number, SUMS=partial is not None,
                MP=_triton.ceil_power_of_two(mixes, 1, BACKWARD_MIXES), LANES=LANES,
            )  # fmt: skip
