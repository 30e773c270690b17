"""The mean of all processes' gradients: dense ones in one flat tensor or by DDP, tables by the rows that any used."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elmo_fast.pretrain.processes import Processes


class GradientExchange:
    """Leaves the gradient of all rows of all processes in the parameters.

    A process computes its parts of the rows one after the other; autograd adds their gradients. Then

        gradient = mean over processes of (factor * gradient of the process's own rows)

    is made after the last backward pass, of which a CUDA graph can thus be captured, or while it runs.

    Args:
        streams: the biLM over two streams.
        tables: the parameters of each table, whose gradients have the same rows.
        processes: those that train together.
        parts: how many parts each process computes.
        overlapped: whether DistributedDataParallel exchanges dense gradients during the last part's backward pass.

    Attributes:
        streams: the module by which every part is computed.
        factor: by which a part's loss is multiplied, so that the mean is the sum over all rows.
    """

    def __init__(
        self,
        streams: nn.Module,
        tables: Sequence[Sequence[nn.Parameter]],
        processes: Processes,
        parts: int,
        *,
        overlapped: bool = False,
    ) -> None:
        self.tables, self.processes, self.parts, self.overlapped = tables, processes, parts, overlapped
        self.factor = float(processes.size)
        apart = [parameter for table in tables for parameter in table]
        self.dense = [each for each in streams.parameters() if not any(each is other for other in apart)]
        self.streams = wrap_in_ddp(streams, processes, apart) if overlapped else streams
        self._flat: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def part(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Return what is open around the forward and backward pass of part `number`: DDP exchanges in the last one."""
        if number < self.parts - 1 and isinstance(self.streams, DistributedDataParallel):
            return self.streams.no_sync()
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Exchange, after the last part, what DistributedDataParallel has not."""
        if not self.processes.distributed:
            return
        begun = [] if self.overlapped else self._average_dense()
        for table in self.tables:
            self._average_table(table)
        for each in begun:
            each.wait()

    def total(self, sums: Tensor) -> Tensor:
        """Return both directions' losses summed over all rows, [2]; sums: of this process's parts, [parts, 2]."""
        return self.processes.sum_(functools.reduce(torch.add, sums.unbind()))

    @torch.no_grad()
    def _average_dense(self) -> list[Any]:
        """Begin to make dense gradients their mean: views of one flat tensor, kept, of each dtype; what to wait for."""
        begun = []
        kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
        for parameter in self.dense:
            if parameter.grad is not None:
                kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        for kind, parameters in kinds.items():
            gradients = [parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]
            self._flat[kind] = flat = torch.cat(gradients, out=self._flat.get(kind))
            begun.append(dist.all_reduce(flat.mul_(1 / self.processes.size), async_op=True))  # as DDP divides
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = part.view_as(parameter)
        return begun

    @torch.no_grad()
    def _average_table(self, table: Sequence[nn.Parameter]) -> None:
        gradients = [parameter.grad for parameter in table if parameter.grad is not None]
        if gradients and gradients[0].is_sparse:
            for parameter, gradient in zip(table, average_rows(gradients, self.processes), strict=True):
                parameter.grad = gradient
        else:
            for gradient in gradients:
                dist.all_reduce(gradient.div_(self.processes.size))


def wrap_in_ddp(module: nn.Module, processes: Processes, apart: Sequence[nn.Parameter] = ()) -> nn.Module:
    """Return the module; with several processes its dense gradients become their mean over all of them.

    apart: parameters that are left out, because they are exchanged by rows.
    """
    if not processes.distributed:
        return module
    if names := [name for name, parameter in module.named_parameters() if any(parameter is each for each in apart)]:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    # No hook of ours that would add in place of DDP's mean: gloo's threads would run Python, also while it ends.
    wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True)
    wrapped.broadcast_buffers = False
    return wrapped


@torch.no_grad()
def average_rows(gradients: Sequence[Tensor], processes: Processes) -> list[Tensor]:
    """Return the means over all processes of sparse gradients with the same ids: the rows that any used, coalesced.

    gradients: sparse COO [V, ...], sparse in the first dimension, of one op. Exchanged are 8 bytes per id and one block
    each of the rows of the union of all ids, whatever V is. On a GPU the host waits to know how many ids there are.
    """
    if not processes.distributed:
        return list(gradients)
    mine = [gradient.coalesce() for gradient in gradients]
    ids = mine[0].indices()[0]
    assert all(len(each.indices()[0]) == len(ids) for each in mine)
    union = _union(ids, processes)
    means = []
    for each in mine:
        block = each.values().new_zeros(len(union), *each.shape[1:])
        block[torch.searchsorted(union, ids)] = each.values()
        dist.all_reduce(block.div_(processes.size))
        means.append(torch.sparse_coo_tensor(union[None], block, each.shape, is_coalesced=True, check_invariants=False))
    return means


def _union(ids: Tensor, processes: Processes) -> Tensor:
    """Return the distinct ids of all processes, sorted; each may have another number of them."""
    counts = [torch.zeros((), dtype=torch.int64, device=ids.device) for _ in range(processes.size)]
    dist.all_gather(counts, torch.tensor(len(ids), device=ids.device))
    longest = int(torch.stack(counts).max())
    padded = ids[:1].repeat(longest)
    padded[: len(ids)] = ids
    everyone = [torch.empty_like(padded) for _ in range(processes.size)]
    dist.all_gather(everyone, padded)
    return torch.cat(everyone).unique()
