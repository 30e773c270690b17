"""A table's gradient over processes: the rows that any of them used, as one block."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmo_fast.pretrain.processes import Processes


def all_ids(ids: Tensor, processes: Processes) -> Tensor:
    """The distinct ids of all processes, sorted; each may have another number of them."""
    counts = [torch.zeros((), dtype=torch.int64, device=ids.device) for _ in range(processes.size)]
    dist.all_gather(counts, torch.tensor(len(ids), device=ids.device))
    longest = int(torch.stack(counts).max())
    padded = ids[:1].repeat(longest)
    padded[: len(ids)] = ids
    everyone = [torch.empty_like(padded) for _ in range(processes.size)]
    dist.all_gather(everyone, padded)
    return torch.cat(everyone).unique()


def block_of(gradient: Tensor, ids: Tensor) -> Tensor:
    """The rows `ids`, sorted, of a coalesced gradient [V, ...], zeros where it has none."""
    block = gradient.values().new_zeros(len(ids), *gradient.shape[1:])
    block[torch.searchsorted(ids, gradient.indices()[0])] = gradient.values()
    return block


def gradient_of(block: Tensor, ids: Tensor, shape: torch.Size) -> Tensor:
    """The coalesced gradient of this shape, [V, ...], whose rows `ids`, sorted, are the block's."""
    return torch.sparse_coo_tensor(ids[None], block, shape, is_coalesced=True, check_invariants=False)


@torch.no_grad()
def average_rows(gradients: Sequence[Tensor], processes: Processes) -> list[Tensor]:
    """The means over all processes of sparse gradients with the same ids: the rows that any process used, coalesced.

    gradients: sparse COO [V, ...], sparse in the first dimension, of one op. Exchanged are 8 bytes per id and one block
    each of the rows of the union of all ids, whatever V is. On a GPU the host waits to know how many ids there are.
    """
    if not processes.distributed:
        return list(gradients)
    mine = [gradient.coalesce() for gradient in gradients]
    ids = mine[0].indices()[0]
    assert all(len(each.indices()[0]) == len(ids) for each in mine)
    union = all_ids(ids, processes)
    blocks = [block_of(gradient, union) for gradient in mine]
    for block in blocks:
        dist.all_reduce(block.div_(processes.size))
    return [gradient_of(block, union, each.shape) for block, each in zip(blocks, mine, strict=True)]


@torch.no_grad()
def average_gradients(table: Sequence[nn.Parameter], processes: Processes) -> None:
    """Makes the gradients of one table's parameters, which DDP does not hold, their mean over all processes."""
    gradients = [parameter.grad for parameter in table if parameter.grad is not None]
    if not processes.distributed:
        return
    if gradients and gradients[0].is_sparse:
        for parameter, gradient in zip(table, average_rows(gradients, processes), strict=True):
            parameter.grad = gradient
    else:
        for gradient in gradients:
            dist.all_reduce(gradient.div_(processes.size))
