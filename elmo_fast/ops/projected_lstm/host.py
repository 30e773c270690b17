"""Allocates, chooses tiles and starts the kernels of a layer forwards; shapes and step order as in docs/gpu.md."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._triton import cdiv, input_precision, launch
from elmo_fast.ops._weights import packed
from elmo_fast.ops.projected_lstm import kernels_forward, kernels_inputs, kernels_order
from elmo_fast.ops.projected_lstm.layer import Layer, layer_of, pre_activation_dtype
from elmo_fast.ops.projected_lstm.tiling import tiles

LENGTHS = torch.int64


class Steps(NamedTuple):
    """What the scan leaves, in step order: see the kernels for shapes. Slots: c and h have one more than steps."""

    inputs: Tensor
    gates: Tensor
    cells: Tensor
    projections: Tensor
    hidden: Tensor


def packed_weights(name: str, parameters: list[Tensor], dtype: torch.dtype) -> Tensor:
    """The directions' parameters one after the other, [R, ...], in `dtype`; kept until one of them changes."""
    shape = (len(parameters), *parameters[0].shape)

    def fill(copies: list[Tensor]) -> None:
        given = [parameter.detach() for parameter in parameters]
        if given[0].dtype == dtype:
            torch.stack(given, out=copies[0])
        else:
            torch._foreach_copy_(list(copies[0].unbind(0)), given)

    device = parameters[0].device
    return packed(f"{name} {dtype}", parameters, lambda: [torch.empty(shape, dtype=dtype, device=device)], fill)[0]


def packed_layer(a: Any, dtype: torch.dtype) -> list[Tensor]:
    """W_ih, W_hh, bias (float32; not for backward) and, where there is one, W_hr, each as `packed_weights`."""
    return [
        packed_weights(name, getattr(a, name), torch.float32 if name == "bias" else dtype)
        for name in ("weight_ih", "weight_hh", "bias", "weight_hr")
        if getattr(a, name, None)
    ]


def ordered(lengths: Tensor | None, layer: Layer, device: torch.device) -> tuple[Tensor | None, Tensor]:
    """(order: row of the batch at each place, lengths there), by falling length; the host waits for nothing.

    The order is None where no lengths are given: rows stay where they are.
    """
    if lengths is None:
        return None, torch.full((layer.batch,), layer.time, device=device)
    falling, order = torch.sort(lengths.clamp(0, layer.time), descending=True, stable=True)
    return order, falling


def arrange(
    x: Tensor, layer: Layer, direction: int, order: Tensor | None, steps: Tensor, out: Tensor, scale: Tensor | None
) -> None:
    """x [B, T, *] of one direction into out [T, B, *] in step order, in out's dtype."""
    launch(
        kernels_order.arrange, (layer.time * layer.batch,),
        x, order, steps, scale, out, layer.batch, x.shape[2], *x.stride(), REVERSE=layer.reverse[direction],
        SCALED=scale is not None, BLOCK=_triton.ceil_power_of_two(x.shape[2], 16, 1024),
    )  # fmt: skip


def inputs_half(layer: Layer, x: Tensor, weight_ih: Tensor) -> Tensor:
    """What the inputs [R, T, B, I] give to the pre-activations, [R, T, B, 4H].

    cuBLAS stores no float16 of bfloat16 operands: a kernel of ours does, which spares half of the largest tensor.
    """
    wide, gates = pre_activation_dtype(layer), 4 * layer.cells
    if layer.dtype != torch.bfloat16:
        product = _triton.matmul(x.flatten(1, 2), weight_ih.transpose(1, 2), wide)
        return product.view(*x.shape[:3], gates)
    out, rows = x.new_empty(*x.shape[:3], gates, dtype=wide), layer.time * layer.batch
    tile, _ = tiles(layer, "inputs", x.device)
    launch(
        kernels_inputs.inputs, (cdiv(rows, tile.rows), cdiv(gates, tile.columns), layer.directions),
        x, weight_ih, out, rows, layer.width, gates, BM=tile.rows, BN=tile.columns, BK=tile.depth, **tile.options,
    )  # fmt: skip
    return out


def allocate(layer: Layer, x: Tensor, save: bool, ragged: bool) -> Steps:
    """Memory for a pass; without `save` cells keep two slots. Raises ElmoFastError when the device has not enough.

    ragged: rows may end before T; what is saved of the steps that they have not is then 0.
    """
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    wide = pre_activation_dtype(layer)
    slots = t + 1 if save else 2
    per_row = r * (t * (layer.width * layer.dtype.itemsize + 4 * h * wide.itemsize + 6 * d) + slots * h * 4)
    with _triton.explained("projected_lstm", "rows of the batch", b * per_row, per_row, b, x.device):
        return Steps(
            x.new_empty(r, t, b, layer.width, dtype=layer.dtype),
            x.new_empty(0, dtype=wide),
            (x.new_zeros if ragged and save else x.new_empty)(r, slots, b, h),
            (x.new_zeros if ragged and save else x.new_empty)(r, t, b, d),
            x.new_empty(r, t + 1, b, d, dtype=layer.dtype),
        )


def sorted_rows(x: Tensor, order: Tensor | None) -> Tensor:
    """x [R, B, *], its rows in step order; None: they are."""
    return x if order is None else x.index_select(1, order)


def begin(state: Tensor | None, order: Tensor | None, first: Tensor) -> None:
    """Writes the state before the first step, rows sorted, into slot 0."""
    if state is None:
        first.zero_()
    else:
        first.copy_(sorted_rows(state, order))


def scan(layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, save: bool) -> None:
    """All steps, two launches each (one where nothing is projected). weights: W_hh, bias, and W_hr or nothing."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    weight_hh, bias, *projection = weights
    device = lengths.device
    (tile, _), (part, split) = tiles(layer, "cells", device), tiles(layer, "project", device)
    precision = input_precision(layer.dtype, device)
    chunk = cdiv(cdiv(h, split), part.depth) * part.depth
    hidden = steps.hidden.new_empty(r, b, h)
    grid = (cdiv(d, part.columns), cdiv(b, part.rows), r * split)
    parts = bias.new_empty(r * split, b, d)
    arrived = lengths.new_zeros(r * grid[0] * grid[1], dtype=torch.int32)
    for step in range(t):
        launch(
            kernels_forward.cells, (cdiv(h, tile.columns), cdiv(b, tile.rows), r),
            steps.hidden, weight_hh, bias, steps.gates, steps.cells, hidden, masks, steps.projections, steps.hidden,
            lengths, step, b, t, d, h, steps.cells.shape[1], layer.cell_clip,
            SAVE=save, PROJECT=bool(projection), MASKED=masks is not None,
            BM=tile.rows, BC=tile.columns, BK=tile.depth, PRECISION=precision, launch_pdl=True, **tile.options,
        )  # fmt: skip
        if projection:
            launch(
                kernels_forward.project, grid, hidden, projection[0], masks, steps.projections, steps.hidden, lengths,
                parts, arrived, step, b, t, d, h, chunk, layer.projection_clip,
                MASKED=masks is not None, SPLIT=split,
                BM=part.rows, BN=part.columns, BK=part.depth, PRECISION=precision, launch_pdl=True, **part.options,
            )  # fmt: skip


def finish(
    layer: Layer, steps: Steps, a: Any, order: Tensor | None, lengths: Tensor, masks: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(outputs [R, B, T, D], h [R, B, D], c [R, B, H]) in the user's order."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    new = steps.projections.new_empty
    outputs, last_h, last_c = new(r, b, t, d), new(r, b, d), new(r, b, h)
    each_mask = masks.unbind(0) if masks is not None else [None] * r
    for i, (x, left, mask, out) in enumerate(
        zip(a.inputs, steps.projections.unbind(0), each_mask, outputs.unbind(0), strict=True)
    ):
        launch(
            kernels_order.put_back, (t * b,), left, x, order, lengths, mask, None, out,
            b, t, d, *x.stride(), layer.projection_clip, REVERSE=layer.reverse[i], MASKED=mask is not None,
            RESIDUAL=layer.residual, SCALED=False, BLOCK=_triton.ceil_power_of_two(d, 16, 1024),
        )  # fmt: skip
    for held, left, out, slots, first, bound, mask in (
        (a.h0, steps.projections, last_h, max(t, 1), 0, layer.projection_clip, masks),
        (a.c0, steps.cells, last_c, steps.cells.shape[1], 1, layer.cell_clip, None),
    ):
        held = None if held is None else held.contiguous()
        launch(
            kernels_order.last, (b, r), left, held, order, lengths, mask, out, b, out.shape[2], slots, first, bound,
            STARTED=held is not None, MASKED=mask is not None, BLOCK=_triton.ceil_power_of_two(out.shape[2], 16, 1024),
        )  # fmt: skip
    return outputs, last_h, last_c


def forward(a: Any) -> tuple[tuple[Tensor, Tensor, Tensor], Steps, Tensor | None, Tensor]:
    """(outputs, h and c), what the scan left, and `ordered`'s results, for the op's arguments."""
    layer = layer_of(a)
    order, falling = ordered(a.lengths, layer, a.inputs[0].device)
    steps = allocate(layer, a.inputs[0], a.save, a.lengths is not None)
    for i, (x, into) in enumerate(zip(a.inputs, steps.inputs.unbind(0), strict=True)):
        arrange(x, layer, i, order, falling, into, None)
    weight_ih, weight_hh, bias, *rest = packed_layer(a, layer.dtype)
    steps = steps._replace(gates=inputs_half(layer, steps.inputs, weight_ih))
    masks = sorted_rows(torch.stack(a.masks), order) if a.masks else None
    begin(a.h0, order, steps.hidden.select(1, 0))
    begin(a.c0, order, steps.cells.select(1, 0))
    scan(layer, steps, [weight_hh, bias, *rest], masks, falling, a.save)
    return finish(layer, steps, a, order, falling, masks), steps, order, falling
