"""What launches AdaGrad's kernels: slots of tensors, pieces of segments, tiles."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops.adagrad import kernels

# Tensors of one launch. An ELMo has 37 dense ones, more than half of them smaller than a launch costs; a table of
# their addresses on the device would take any number, but would have to be copied there for every new gradient.
SLOTS = 8
# Elements of one program: 4 a thread in an update, 16 bytes of each of three tensors under way, and the same layout for
# a 16-bit copy, so that nothing passes through shared memory; 32 a thread in a norm, which leaves 11 thousand partial
# sums of the 94 million elements for the one program that adds them.
UPDATE_BLOCK, NORM_BLOCK, TOTAL_BLOCK = 1024, 8192, 4096
# Sorted rows that one program adds, and how many of them it loads at a time.
PIECE, ROWS = 64, 8


def tiles(width: int) -> tuple[int, int]:
    """(columns, heads) of a program of four warps on rows of `width`: a whole row, or 32 of a bias.

    A thread holds 16 bytes of each of ROWS rows where rows are as wide.
    """
    columns = _triton.ceil_power_of_two(width, 1, 512)
    return columns, max(1, min(32, 128 // columns))


def _groups(block: int, *lists: Sequence[Tensor]) -> list[tuple[int, list[int], list[int], list[Tensor]]]:
    """Per launch: number of blocks, first block of slots 1.., elements of slots 0.., tensors list by list.

    Empty tensors have no block. A slot that is not needed begins behind the last block.
    """
    filled = [each for each in zip(*lists, strict=True) if each[0].numel()]
    groups = []
    for start in range(0, len(filled), SLOTS):
        some = filled[start : start + SLOTS]
        ends = list(accumulate(_triton.cdiv(each[0].numel(), block) for each in some))
        unused = SLOTS - len(some)
        firsts = ends[:-1] + unused * ends[-1:]
        some += unused * some[:1]
        sizes = [each[0].numel() for each in some]
        groups.append((ends[-1], firsts, sizes, [tensor for column in zip(*some, strict=True) for tensor in column]))
    return groups


def update(a: Any) -> None:
    largest = max((g.nbytes for g in a.gradients), default=0)
    with _triton.explained("adagrad_", "gradients", largest, largest, len(a.gradients), a.parameters[0].device):
        gradients = [gradient.contiguous() for gradient in a.gradients]
    lists = [a.parameters, a.accumulators, gradients, *([a.copies] if a.copies else [])]
    for blocks, firsts, sizes, tensors in _groups(UPDATE_BLOCK, *lists):
        absent = [] if a.copies else [None] * SLOTS
        _triton.launch(
            kernels.update, (blocks,), a.scale, a.learning_rate, *firsts, *sizes, *tensors, *absent,
            num_warps=8, COPIED=bool(a.copies), BLOCK=UPDATE_BLOCK,
        )  # fmt: skip
    torch.autograd.graph.increment_version([*a.parameters, *a.accumulators, *a.copies])


def square_norm(a: Any) -> Tensor:
    tensors = [tensor.contiguous() for tensor in a.tensors]
    groups = _groups(NORM_BLOCK, tensors)
    count = sum(blocks for blocks, *_ in groups)
    sums, at = tensors[0].new_empty(count), 0
    for blocks, firsts, sizes, some in groups:
        _triton.launch(kernels.square_sums, (blocks,), sums, at, *firsts, *sizes, *some, num_warps=8, BLOCK=NORM_BLOCK)
        at += blocks
    return _total(sums)


def _total(sums: Tensor) -> Tensor:
    out = sums.new_empty(())
    _triton.launch(kernels.total, (1,), sums, sums.numel(), out, num_warps=16, BLOCK=TOTAL_BLOCK)
    return out


def _matrix(rows: Tensor) -> Tensor:
    """[n] as [n, 1], [n, ...] as [n, D]; copied if it is strided."""
    return rows.reshape(rows.shape[0], rows.shape[1:].numel()).contiguous()


def _pieces(ids: Tensor, positions: Tensor, rows: Tensor) -> tuple[tuple[Tensor, ...], dict[str, int], tuple[int, int]]:
    """(ids, positions, rows, sums of what long segments hold behind their first piece) in the memory that kernels
    read; tile and grid of the kernel that reads them."""
    ids, positions, rows = ids.contiguous(), positions.contiguous(), _matrix(rows)
    n, width = rows.shape
    columns, heads = tiles(width)
    tile = {"D": width, "PIECE": PIECE, "ROWS": ROWS, "COLUMNS": columns, "HEADS": heads}
    count, chunks = _triton.cdiv(n, PIECE), _triton.cdiv(width, columns)
    needed = 4 * width
    with _triton.explained("adagrad", "pieces of rows", count * needed, needed, count, rows.device):
        pieces = rows.new_empty(count, width)
    _triton.launch(kernels.sum_pieces, (_triton.cdiv(count, heads), chunks), ids, positions, rows, pieces, n, **tile)
    return (ids, positions, rows, pieces), tile, (_triton.cdiv(n, heads), chunks)


def update_rows(a: Any) -> None:
    sorted_rows, tile, grid = _pieces(a.ids, a.positions, a.rows)
    given = (a.table, a.accumulator, a.scale, a.learning_rate, len(a.rows), a.table.shape[0])
    _triton.launch(kernels.update_rows, grid, *sorted_rows, *given, **tile)
    torch.autograd.graph.increment_version([a.table, a.accumulator])


def merged_square_norm(a: Any) -> Tensor:
    sorted_rows, tile, grid = _pieces(a.ids, a.positions, a.rows)
    sums = a.rows.new_empty(grid)
    _triton.launch(kernels.merged_square_sums, grid, *sorted_rows, sums, len(a.rows), a.num_words, **tile)
    return _total(sums)
