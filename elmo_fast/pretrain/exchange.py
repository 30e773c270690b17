"""Gradients of processes that train together, added up: dense ones in DDP's buckets, those of a table as its rows."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elmo_fast.pretrain.peers import Peers


def _added(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    # DDP's own hook divides by the number of processes; losses here are shares of one sum already.
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def added_over_processes(module: nn.Module, peers: Peers) -> nn.Module:
    """The module, whose dense gradients become the sum over all processes where there are several."""
    if not peers.together:
        return module
    wrapped = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, _added)
    return wrapped


def _all_ids(ids: Tensor, peers: Peers) -> Tensor:
    """The distinct ids of all processes, sorted; each may have another number of them."""
    counts = [torch.zeros((), dtype=torch.int64, device=ids.device) for _ in range(peers.size)]
    dist.all_gather(counts, torch.tensor(len(ids), device=ids.device))
    longest = int(torch.stack(counts).max())
    padded = ids[:1].repeat(longest)
    padded[: len(ids)] = ids
    everyone = [torch.empty_like(padded) for _ in range(peers.size)]
    dist.all_gather(everyone, padded)
    return torch.cat(everyone).unique()


@torch.no_grad()
def add_rows(gradient: Tensor, peers: Peers) -> Tensor:
    """The sum over all processes of a sparse gradient: the rows that any of them used, coalesced.

    gradient: sparse COO [V, ...], sparse in the first dimension. Exchanged are 8 bytes per id and one block of the rows
    of the union of all ids, whatever V is.
    """
    if not peers.together:
        return gradient
    gradient = gradient.coalesce()
    ids, rows = gradient.indices()[0], gradient.values()
    union = _all_ids(ids, peers)
    block = rows.new_zeros(len(union), *rows.shape[1:])
    block[torch.searchsorted(union, ids)] = rows
    dist.all_reduce(block)
    return torch.sparse_coo_tensor(union[None], block, gradient.shape, is_coalesced=True, check_invariants=False)


@torch.no_grad()
def add_gradients(parameters: list[nn.Parameter], peers: Peers) -> None:
    """Makes the gradients of parameters that DDP does not hold their sum over all processes."""
    for parameter in parameters:
        if peers.together and parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = add_rows(parameter.grad, peers)
            else:
                dist.all_reduce(parameter.grad)
