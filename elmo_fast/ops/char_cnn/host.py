"""Packs the filters, chooses tiles and starts the kernels of char_cnn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import segment_sum
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, launch
from elmo_fast.ops._weights import packed
from elmo_fast.ops.char_cnn import kernels

PARTS = 16  # over how many parts of the words weight gradients are summed side by side


class Filters(NamedTuple):
    """The sizes of all convolutions: width and number of each; of the packed rows: E, depth, multiple of rows."""

    widths: tuple[int, ...]
    numbers: tuple[int, ...]
    size: int
    depth: int
    block: int

    def tiles(self, block: int) -> list[int]:
        """The first tile of each width, and the number of all, in tiles of `block` filters."""
        first = [0]
        for number in self.numbers:
            first.append(first[-1] + cdiv(number, block))
        return first

    @property
    def constants(self) -> dict[str, Any]:
        """What every kernel takes of it."""
        return {"WIDTHS": self.widths, "NUMBERS": self.numbers, "E": self.size, "DEPTH": self.depth}


def filters_of(weights: Sequence[Tensor], precision: str) -> Filters:
    """The one place where the layout is chosen: K up to 256 stays whole in shared memory, float32 goes 16 at a time."""
    widths, numbers = tuple(w.shape[2] for w in weights), tuple(w.shape[0] for w in weights)
    size = ceil_power_of_two(weights[0].shape[1], 16, 2**20)
    depth = ceil_power_of_two(max(widths) * size, 16, 2**30)
    if depth > 256:
        depth = -(-max(widths) * size // 64) * 64
    return Filters(
        widths, numbers, size, depth, ceil_power_of_two(max(numbers), 16, 128 if precision != "float32" else 64)
    )


def places_of(f: Filters, weights: Sequence[Tensor]) -> Tensor:
    """[rows, depth] int32: where each number of the packed filters is in all weights, one after the other; behind them,
    where there is none."""
    first = [tile * f.block for tile in f.tiles(f.block)]
    sizes = [weight.numel() for weight in weights]
    numbers = torch.arange(sum(sizes), dtype=torch.int32, device=weights[0].device).split(sizes)
    places = numbers[0].new_full((first[-1], f.depth), sum(sizes))
    for start, weight, mine in zip(first, weights, numbers, strict=False):
        number, size, width = weight.shape
        place = places[start : start + number, : width * f.size].view(number, width, f.size)
        place[:, :, :size].copy_(mine.view(number, size, width).transpose(1, 2))
    return places


def operands(
    embedding: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """(characters, then a row of NaN and one of zeros; packed filters; all biases), kept until a parameter changes."""
    f = filters_of(weights, precision)
    dtype, device = getattr(torch, precision), embedding.device
    characters, size = embedding.shape
    rows = f.tiles(f.block)[-1] * f.block

    def empty() -> list[Tensor]:
        shapes = (((characters + 2, f.size), dtype), ((rows, f.depth), dtype), ((sum(f.numbers),), torch.float32))
        copies = [torch.zeros(shape, dtype=kind, device=device) for shape, kind in shapes]
        copies[0][characters].fill_(torch.nan)
        return [*copies, places_of(f, weights), torch.zeros(1, device=device)]

    def fill(copies: list[Tensor]) -> None:
        table, filters, bias, places, zero = copies
        table[:characters, :size].copy_(embedding.detach())
        numbers = torch.cat([*(weight.detach().flatten() for weight in weights), zero]).to(dtype)
        torch.index_select(numbers, 0, places.view(-1), out=filters.view(-1))
        torch.cat([b.detach() for b in biases], out=bias)

    table, filters, bias, *_ = packed(f"char_cnn {precision}", [embedding, *weights, *biases], empty, fill)
    return table, filters, bias


def forward(a: Any) -> tuple[Tensor, Tensor]:
    """Features [N, F] float32 and, where `save`, the windows that won, [N, F] int16 (else [0, F])."""
    if a.ids.shape[1] > torch.iinfo(torch.int16).max:
        raise RuntimeError(f"char_cnn: more slots than an int16 counts: {a.ids.shape[1]}")
    f = filters_of(a.weights, a.precision)
    (rows, slots), total = a.ids.shape, sum(f.numbers)
    with _triton.explained("char_cnn", "words", rows * total * 6, total * 6, rows, a.ids.device):
        features = a.embedding.new_empty(rows, total)
        winners = a.embedding.new_empty(rows if a.save else 0, total, dtype=torch.int16)
    table, filters, bias = operands(a.embedding, a.weights, a.biases, a.precision)
    # One stage: the table is 8 KiB that every SM wants at once. Loads into registers find it in L1; the asynchronous
    # copies that more stages become would ask the same few lines of L2 for it.
    tiles, high = f.tiles(f.block)[-1], 64
    launch(
        kernels.forward, (cdiv(rows, high) * tiles,), a.ids, *a.ids.stride(), a.count, table, filters, bias, features,
        winners, rows, slots, a.embedding.shape[0], total, tiles, **f.constants,
        STEP=16 if a.precision == "float32" else f.depth if f.depth <= 256 else 64, BM=high, BN=f.block,
        TANH=a.tanh, SAVE=a.save, COUNTED=a.count is not None, num_warps=8, num_stages=1,
    )  # fmt: skip
    return features, winners


def _read(a: Any) -> tuple[Any, ...]:
    """What both halves of a backward pass read."""
    return a.grad, a.features, a.winners, a.ids, *a.ids.stride(), a.count


def weight_gradients(a: Any, table: Tensor, f: Filters) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of weights and biases: summed over parts of the words, then over the parts in order."""
    (rows, total), slots = a.features.shape, a.ids.shape[1]
    block, held = min(32, f.block), max(1, min(f.depth, 128) // f.size)  # slots: a power of two
    first = f.tiles(block)
    parts = max(1, min(PARTS, cdiv(rows, 64)))
    d_weights = [w.new_empty(w.shape) for w in a.weights]
    d_biases = [w.new_empty(w.shape[0]) for w in a.weights]
    grid = (first[-1] * parts, cdiv(f.depth, (held * f.size)))
    sums = table.new_empty(parts, first[-1] * block, f.depth, dtype=torch.float32)
    bias_sums = table.new_empty(parts, first[-1] * block, dtype=torch.float32)
    launch(
        kernels.weight_sums, grid, *_read(a), table, sums, bias_sums, rows, slots,
        table.shape[0] - 2, total, first[-1], parts, **f.constants, TANH=a.tanh, COUNTED=a.count is not None,
        SLOTS=held, BN=block, num_warps=4,
    )  # fmt: skip
    for start, d_weight, d_bias in zip(first, d_weights, d_biases, strict=False):
        number, size, width = d_weight.shape
        launch(
            kernels.finish_weights, (cdiv(number, 16), grid[1]), sums, bias_sums, d_weight, d_bias,
            start * block, first[-1] * block, parts, number, size, width,
            E=f.size, DEPTH=f.depth, SLOTS=held, BN=16, num_warps=4,
        )  # fmt: skip
    return d_weights, d_biases


def embedding_gradient(a: Any, filters: Tensor, f: Filters) -> Tensor:
    """The gradient of the embedding: that of every slot first, then sums over the slots of each character."""
    (rows, total), slots = a.features.shape, a.ids.shape[1]
    characters, size = a.embedding.shape
    scaled = filters.dtype != torch.float32
    # Rows of operands: 64 fill the tensor cores. float32 takes 32, which no compiler hands to them: Triton 3.6 makes
    # tf32 of a product of 64 rows for sm_100, whatever its input_precision.
    high, wide = 4 if scaled else 2, 16
    # Radix sort passes over 8 bits of the keys at a time: two passes for the characters of any published model.
    narrow = torch.int16 if characters < 2**15 - 1 else torch.int32
    needed = rows * slots * f.size * 4
    with _triton.explained("char_cnn_backward", "words", needed, slots * f.size * 4, rows, a.ids.device):
        d_inputs = a.embedding.new_empty(rows * slots, f.size)
        keys = a.embedding.new_empty(rows * slots, dtype=narrow)
    launch(
        kernels.input_gradients, (cdiv(rows, high), cdiv(slots, wide)), *_read(a), filters, d_inputs, keys,
        rows, slots, characters, total, f.tiles(f.block)[-1], **f.constants, TANH=a.tanh,
        COUNTED=a.count is not None, WIDEST=max(f.widths), BR=high, BS=wide, BN=f.block, SCALED=scaled,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    gradient = segment_sum(d_inputs, keys, characters)
    return gradient if size == f.size else a.embedding.new_empty(a.embedding.shape).copy_(gradient[:, :size])


def backward(a: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(d_embedding, d_weights, d_biases); what is not needed is empty."""
    if a.winners.shape != a.features.shape:
        raise RuntimeError("char_cnn_backward: the forward pass was told to save nothing")
    a = a._replace(grad=a.grad.contiguous())
    f = filters_of(a.weights, a.precision)
    table, filters, _ = operands(a.embedding, a.weights, a.biases, a.precision)
    d_weights, d_biases = weight_gradients(a, table, f) if a.need_weights else ([], [])
    d_embedding = embedding_gradient(a, filters, f) if a.need_embedding else a.embedding.new_empty(0)
    return d_embedding, d_weights, d_biases
