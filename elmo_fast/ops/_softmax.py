"""What the Triton backends of the sampled and the full softmax share on the host: tiles, launches, float16's scale."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _softmax_kernels as kernels
from elmo_fast.ops._triton import ceil_power_of_two, launch

# Programs that run at a time, on which the words are spread: an H200's multiprocessors. The same number on every GPU,
# as the order of summation depends on it.
PROGRAMS = 132
# Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
LIFT = 14


class Tiles(NamedTuple):
    """A tile of logits [rows, words] and its depth along D, with the warps and stages that it is compiled for."""

    rows: int
    words: int
    depth: int
    num_warps: int
    num_stages: int


def tiles(rows: int, words: int, width: int, dtype: torch.dtype) -> Tiles:
    """float32 products have no tensor cores: small tiles; 16-bit ones take the largest that spills nothing."""
    if dtype == torch.float32:
        return Tiles(ceil_power_of_two(rows, 16, 64), ceil_power_of_two(words, 16, 64), 16, 4, 3)
    high, wide = ceil_power_of_two(rows, 16, 128), ceil_power_of_two(words, 16, 256)
    return Tiles(high, wide, ceil_power_of_two(width, 16, 64), 8 if high * wide > 64 * 128 else 4, 3)


def constants(tile: Tiles, width: int) -> dict[str, int | bool]:
    """`tile` as the kernels' constants and launch options."""
    return {
        "ROWS": tile.rows, "WORDS": tile.words, "DEPTH": tile.depth, "EVEN": width % tile.depth == 0,
        "num_warps": tile.num_warps, "num_stages": tile.num_stages,
    }  # fmt: skip


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def parts_of(row_tiles: int, word_tiles: int) -> int:
    """Into how many parts the words are cut, so that the last wave of PROGRAMS is as full as can be."""

    def waves(parts: int) -> int:
        return cdiv(row_tiles * parts, PROGRAMS) * cdiv(word_tiles, parts)

    return min(range(1, min(word_tiles, 64) + 1), key=waves)


def row_blocks(width: int) -> tuple[int, int]:
    """(rows, columns) of one step of the kernels that walk rows: 2048 elements, 16 bytes and more per thread."""
    columns = ceil_power_of_two(width, 16, 512)
    return 2048 // columns, columns


def true_logits(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, tries: Tensor | None, operands: Tensor, ids: Tensor,
    samples: int, correction: str, term: float,
) -> Tensor:  # fmt: skip
    """Rounds hidden into `operands`, writes the targets into `ids`, returns their logits [N]."""
    true = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    rows, columns = row_blocks(hidden.shape[1])
    launch(
        kernels.true_logits, (cdiv(len(hidden), rows),), hidden, *hidden.stride(), targets, targets.stride(0), weight,
        *weight.stride(), bias, bias.stride(0), tries, operands, true, ids, len(hidden), samples, *weight.shape,
        CORRECTION=correction, TERM=term, ROWS=rows, WIDTH=columns,
    )  # fmt: skip
    return true


class Parts(NamedTuple):
    """Largest logits and sums of exponentials of all parts, [parts, N] each."""

    maxima: Tensor
    sums: Tensor


def empty_parts(parts: int, count: int, device: torch.device) -> Parts:
    return Parts(*(torch.empty(parts, count, dtype=torch.float32, device=device) for _ in range(2)))


def add_parts(
    into: Parts, first: int, parts: int, operands: Tensor, rows: Tensor, offsets: Tensor, targets: Tensor,
    ids: Tensor | None, base: int, tile: Tiles,
) -> None:  # fmt: skip
    """Parts first..first+parts-1 from the logits of operands [N, D] against rows [S, D]."""
    (count, width), words = operands.shape, len(rows)
    launch(
        kernels.log_sums, (cdiv(count, tile.rows), parts), operands, rows, offsets, targets, ids, base, *into, first,
        count, words, width, cdiv(cdiv(words, tile.words), parts), **constants(tile, width),
    )  # fmt: skip


def merged(parts: Parts, true: Tensor) -> tuple[Tensor, Tensor]:
    """Losses [N] and the log-sum-exps [N] of all logits, the target's among them."""
    losses, totals = torch.empty_like(true), torch.empty_like(true)
    count = len(true)
    launch(kernels.merged_losses, (cdiv(count, 128),), *parts, true, losses, totals, count, len(parts.sums), ROWS=128)
    return losses, totals


def scale_of(grad: Tensor, dtype: torch.dtype) -> Tensor | None:
    """[scale, 1 / scale] for float16, whose range products of g and p leave; None where nothing need be scaled."""
    if dtype != torch.float16:
        return None
    scale = torch.empty(2, dtype=torch.float32, device=grad.device)
    launch(kernels.power_of_two, (1,), grad, grad.stride(0), scale, len(grad), LIFT=LIFT, BLOCK=4096, num_warps=8)
    return scale


def logit_gradients(
    out: Tensor, column_sums: Tensor, first_tile: int, operands: Tensor, rows: Tensor, offsets: Tensor,
    targets: Tensor, ids: Tensor | None, base: int, totals: Tensor, losses: Tensor, grad: Tensor,
    scale: Tensor | None, tile: Tiles,
) -> None:  # fmt: skip
    """out [N, S] operands and column_sums[first_tile:...] from operands [N, D] against rows [S, D]."""
    (count, width), words = operands.shape, len(rows)
    launch(
        kernels.logit_gradients, (cdiv(count, tile.rows), cdiv(words, tile.words)), operands, rows, offsets, targets,
        ids, base, totals, losses, grad, grad.stride(0), scale, out, column_sums, first_tile, count, words, width,
        TARGETS=ids is None, **constants(tile, width),
    )  # fmt: skip
