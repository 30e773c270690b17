"""The sums of gradients over all processes, exchanged while the rest of the backward pass runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from elmo_fast.pretrain.processes import Processes

Between = Iterator[Callable[[], object]]
"""What the host does between launches: it starts an exchange, or lets later launches wait for one."""


class Table(NamedTuple):
    """Parameters whose gradients have the same rows, and at most how many different ones all processes use in a step.

    parameters: [V, ...] each.
    """

    parameters: Sequence[Tensor]
    most_rows: int


class Exchange:
    """The exchange of one step's gradients, begun as they become ready; every process does the same in the same order.

    Its functions launch what a CUDA graph can hold, and yield what it cannot: the collectives. On a GPU nothing waits
    on the host: all sizes are known before. The sums are in memory that stays allocated.

    memory: of dense gradients, from step to step; at_once: whether rows of tables are merged as they are computed, so
    that the host knows their number.
    """

    def __init__(self, processes: Processes, memory: dict[object, Tensor], at_once: bool) -> None:
        self.processes, self.memory, self.at_once = processes, memory, at_once
        self._ready: list[Tensor] = []
        self._pending: list[dist.Work] = []

    def add(self, dense: Sequence[Tensor], tables: Sequence[Table] = (), others: Sequence[Tensor] = ()) -> Between:
        """Add what is ready to be summed, from the next `start` on. Sums replace the gradients, or are in place.

        dense: parameters with dense gradients or none; tables: whose gradients are sparse or dense; others: tensors.
        """
        if not self.processes.distributed:
            return
        sparse = [table for table in tables if any(gradient.is_sparse for gradient in _gradients(table.parameters))]
        self._ready += others
        self._ready += [each for table in tables if table not in sparse for each in _gradients(table.parameters)]
        own = [self._ids(table) for table in sparse]
        everyone = [ids.new_empty(self.processes.size, len(ids)) for ids in own]
        if own:
            yield lambda: [dist.all_gather(list(into), ids) for into, ids in zip(everyone, own, strict=True)]
        for table, ids in zip(sparse, everyone, strict=True):
            self._ready += _rows_of_union(table, ids.flatten(), self.at_once)
        self._ready += self._together(dense)

    def start(self, wait: bool = False) -> Between:
        """Start the sums of what was added, while what follows is launched.

        wait: let what follows wait for all sums: on a GPU its launches, elsewhere the host.
        """
        if self.processes.distributed and (self._ready or wait):
            ready, self._ready = self._ready, []
            yield lambda: self._sum(ready, wait)

    def _sum(self, tensors: Sequence[Tensor], wait: bool) -> None:
        self._pending += [dist.all_reduce(each, async_op=True) for each in tensors]
        while wait and self._pending:
            self._pending.pop(0).wait()

    def _ids(self, table: Table) -> Tensor:
        """Return the ids of this process's rows, of the same number in all processes."""
        ids = _gradients(table.parameters)[0]._indices()[0]
        if not self.at_once:
            return ids.contiguous()
        missing = self.processes.max_(len(ids)) - len(ids)
        return torch.cat([ids, ids.new_full((missing,), table.parameters[0].shape[0])])

    def _together(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Copy dense gradients behind each other into one tensor, of which they become views."""
        some = [parameter for parameter in parameters if parameter.grad is not None]
        if not some:
            return []
        kind = tuple((id(parameter), parameter.numel()) for parameter in some)
        flat = torch.cat([gradient.flatten() for gradient in _gradients(some)], out=self.memory.get(kind))
        self.memory[kind] = flat
        for parameter, part in zip(some, flat.split([each.numel() for each in some]), strict=True):
            parameter.grad = part.view_as(parameter)
        return [flat]


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _rows_of_union(table: Table, everyone: Tensor, at_once: bool) -> list[Tensor]:
    """Make the gradients rows of all ids that any process used; return these rows, which the sum is still missing.

    everyone: ids of all processes. Without `at_once` the host does not know how many the union has, and ids after the
    last are V, which no update takes for a word.
    """
    words = table.parameters[0].shape[0]
    if at_once:
        union = everyone.unique()
        union = union[union < words]
    else:
        ids = everyone.sort().values
        index = torch.cat([torch.zeros_like(ids[:1]), (ids[1:] != ids[:-1]).cumsum(0)])
        # Two more, for paddings of the gradient itself.
        union = ids.new_full((min(words, table.most_rows) + 2,), words).scatter_(0, index, ids)
    blocks = []
    for parameter in table.parameters:
        if (gradient := parameter.grad) is None:
            continue
        ids, rows = gradient._indices()[0], gradient._values()
        block = rows.new_zeros(len(union), *rows.shape[1:])
        block = block.index_put((torch.searchsorted(union, ids),), rows, accumulate=True)
        options: dict[str, Any] = {"device": block.device, "is_coalesced": at_once, "check_invariants": False}
        parameter.grad = torch.sparse_coo_tensor(union[None], block, gradient.shape, **options)
        blocks.append(block)
    return blocks
