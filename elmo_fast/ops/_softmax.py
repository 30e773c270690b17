"""What the Triton backends of the losses over a vocabulary share on the host: tiles, launches, float16's scale."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _card
from elmo_fast.ops import _softmax_kernels as kernels
from elmo_fast.ops._kernels import power_of_two
from elmo_fast.ops._triton import Tiles, cdiv, ceil_power_of_two, launch

# Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
LIFT = 14


def check_sizes(op: str, words: int, samples: int) -> None:
    """Raises if the kernels' 32-bit numbers of words, or offsets within a tile of logits, would overflow."""
    if words >= 2**31 or samples > 2**24:
        raise ElmoFastError(
            f"{op}: the Triton kernels take a table of less than 2^31 words and at most 2^24 samples; "
            f'got {words} and {samples}; use backend="reference"'
        )


def tiles(rows: int, words: int, width: int, dtype: torch.dtype, device: torch.device) -> Tiles:
    """The largest tile that spills no register; less for few rows or words.

    The depth is the number of float32 products in one partial sum (`_kernels.plus_product`), at most 32.
    """
    float32, small = dtype == torch.float32, _card.is_small(device)
    high, wide = (64, 64) if float32 and small else (128, 64 if float32 else 128)
    high, wide = ceil_power_of_two(rows, 16, high), ceil_power_of_two(words, 16, wide)
    depth, many = ceil_power_of_two(width, 16, 32 if float32 else 64), 64 * (64 if float32 else 128)
    return Tiles(high, wide, depth, 8 if high * wide > many else 4, 2 if float32 and small else 3)


def constants(tile: Tiles, operands: Tensor) -> dict[str, Any]:
    """`tile` as the kernels' constants and launch options, for these operands [N, D]."""
    return {
        "ROWS": tile.rows, "WORDS": tile.columns, "DEPTH": tile.depth, "EVEN": operands.shape[1] % tile.depth == 0,
        "PRECISION": _card.input_precision(operands.dtype, operands.device), **tile.options,
    }  # fmt: skip


def row_blocks(width: int) -> tuple[int, int]:
    """(rows, columns) of one step of the kernels that walk rows: 1024 elements, 16 bytes and more per thread."""
    columns = ceil_power_of_two(width, 16, 512)
    return 1024 // columns, columns


def true_logits(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, law: Tensor | None, operands: Tensor, ids: Tensor,
    samples: int, correction: str, term: float,
) -> Tensor:  # fmt: skip
    """Rounds hidden into `operands`, writes the targets into `ids`, returns their logits [N]."""
    true = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    rows, columns = row_blocks(hidden.shape[1])
    launch(
        kernels.true_logits, (cdiv(len(hidden), rows),), hidden, *hidden.stride(), targets, targets.stride(0), weight,
        *weight.stride(), bias, bias.stride(0), law, operands, true, ids, len(hidden), samples, *weight.shape,
        CORRECTION=correction, TERM=term, ROWS=rows, WIDTH=columns,
    )  # fmt: skip
    return true


def rounded_rows(weight: Tensor, first: int, words: int, scratch: Tensor | None) -> Tensor:
    """Rows first..first+words-1 of the table [V, D] as operands: written into `scratch`, or the table's own memory."""
    if scratch is None:
        return weight.narrow(0, first, words)
    out = scratch.narrow(0, 0, words)
    rows, columns = row_blocks(weight.shape[1])
    launch(
        kernels.round_rows, (cdiv(words, rows),), weight, *weight.stride(), out, first, words, weight.shape[1],
        ROWS=rows, WIDTH=columns,
    )  # fmt: skip
    return out


def empty_sums(planes: int, words: int, count: int, tile: Tiles, device: torch.device) -> Tensor:
    """An empty tensor [planes, tiles of words, N]: `planes` numbers (such as largest logit and sum of exponentials) for
    each row and each tile of `words` words."""
    return torch.empty(planes, cdiv(words, tile.columns), count, dtype=torch.float32, device=device)


def log_sums(
    into: Tensor, operands: Tensor, rows: Tensor, offsets: Tensor, targets: Tensor, ids: Tensor | None, base: int,
    tile: Tiles,
) -> int:  # fmt: skip
    """The sums of operands [N, D] against rows [S, D], targets left out; returns how many tiles of words they are."""
    (count, width), words = operands.shape, len(rows)
    parts = cdiv(words, tile.columns)
    launch(
        kernels.log_sums, (cdiv(count, tile.rows), parts), operands, rows, offsets, targets, ids, base, *into, count,
        words, width, **constants(tile, operands),
    )  # fmt: skip
    return parts


def merge(
    sums: Tensor, parts: int, state: Tensor | None, true: Tensor, losses: Tensor | None, totals: Tensor | None, *,
    first: bool,
) -> None:  # fmt: skip
    """Merges sums onto `state` [2, N] float64 (or begins it) or, given losses [N] and totals [N, 2], finishes them."""
    count = len(true)
    launch(
        kernels.merge, (cdiv(count, 32),), *sums, state, true, losses, totals, count, parts,
        FIRST=first, LAST=losses is not None, ROWS=32, PARTS=32,
    )  # fmt: skip


def scale_of(grad: Tensor, dtype: torch.dtype, lift: int = LIFT) -> Tensor | None:
    """[scale, 1 / scale] for float16, whose range products of g and p exceed; None if nothing needs scaling."""
    if dtype != torch.float16:
        return None
    scale = torch.empty(2, dtype=torch.float32, device=grad.device)
    launch(power_of_two, (1,), grad, grad.stride(0), scale, None, len(grad), LIFT=lift, BLOCK=4096, num_warps=8)
    return scale


def logit_gradients(
    out: Tensor, column_sums: Tensor, first_tile: int, operands: Tensor, rows: Tensor, offsets: Tensor,
    targets: Tensor, ids: Tensor | None, base: int, totals: Tensor, losses: Tensor | None, grad: Tensor,
    scale: Tensor | None, tile: Tiles,
) -> None:  # fmt: skip
    """out [N, S] operands and column_sums[first_tile:...] from operands [N, D] against rows [S, D].

    losses [N] where the targets are among the words, else None.
    """
    (count, width), words = operands.shape, len(rows)
    launch(
        kernels.logit_gradients, (cdiv(count, tile.rows), cdiv(words, tile.columns)), operands, rows, offsets, targets,
        ids, base, totals, losses, grad, grad.stride(0), scale, out, column_sums, first_tile, count, words, width,
        **constants(tile, operands),
    )  # fmt: skip
