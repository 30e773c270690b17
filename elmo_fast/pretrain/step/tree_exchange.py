"""Gradients of virtual shards, added in one binary tree: the same bits on any number of processes."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elmo_fast.ops._table_rows import coalesced
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.binary_tree import BinaryTree, tree_sum
from elmo_fast.pretrain.step.table_exchange import all_ids, block_of, gradient_of
from elmo_fast.pretrain.step.tree_of_processes import TreeOfProcesses


class TreeExchange:
    """The sum of the gradients of S virtual shards of the rows, an `Exchange` whose result does not depend on P.

    A process computes its S / P neighbouring shards one after the other, each by itself and therefore with the same
    bits wherever that is. Dense gradients are added in a binary tree: of the shards of a process, then of the
    processes. Of the tables, so are blocks of the rows that any shard uses; a row that a shard does not use is zeros.

    streams, tables: as of `MeanExchange`; parameters: all that are trained; shards: S, a power of two.
    Raises ElmoFastError where P does not divide S.
    """

    factor = 1.0
    added = 1

    def __init__(
        self,
        streams: nn.Module,
        parameters: Sequence[nn.Parameter],
        tables: Sequence[Sequence[nn.Parameter]],
        processes: Processes,
        shards: int,
    ) -> None:
        self.streams, self.parameters, self.tables = streams, list(parameters), tables
        self.processes, self.parts = processes, processes.assign_shards(shards)
        self.tree = TreeOfProcesses(processes)
        self._start()

    def _start(self) -> None:
        self._dense, self._dense_parameters = BinaryTree(), list[nn.Parameter]()
        self._rows: list[list[list[Tensor]]] = [[] for _ in self.tables]

    @contextlib.contextmanager
    def part(self, number: int) -> Iterator[None]:
        """As `Exchange.part`: takes the gradients of one shard away from the parameters."""
        if number == 0:
            self._start()  # a step that failed may have left some of its shards
        yield
        for table, leaves in zip(self.tables, self._rows, strict=True):
            if sparse := [each.grad for each in table if each.grad is not None and each.grad.is_sparse]:
                leaves.append([coalesced(gradient) for gradient in sparse])
        dense = {each: each.grad for each in self.parameters if each.grad is not None and not each.grad.is_sparse}
        self._dense.add(dense.values())
        self._dense_parameters = list(dense)
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def finish(self) -> None:
        """As `Exchange.finish`; gradients of tables become coalesced."""
        dense = self._dense.total()
        self.tree.add(dense)
        for parameter, gradient in zip(self._dense_parameters, dense, strict=True):
            parameter.grad = gradient
        for table, leaves in zip(self.tables, self._rows, strict=True):
            if leaves:
                self._finish_rows(table, leaves)
        self._start()

    def _finish_rows(self, table: Sequence[nn.Parameter], leaves: Sequence[Sequence[Tensor]]) -> None:
        """Leaves the sum of the shards' rows in one table's parameters."""
        union = torch.cat([leaf[0].indices()[0] for leaf in leaves]).unique()
        if self.processes.distributed:
            union = all_ids(union, self.processes)
        blocks = tree_sum([block_of(gradient, union) for gradient in leaf] for leaf in leaves)
        self.tree.add(blocks)
        for parameter, block in zip(table, blocks, strict=True):
            parameter.grad = gradient_of(block, union, parameter.shape)

    def total(self, sums: Tensor) -> Tensor:
        """As `Exchange.total`: in the same tree."""
        (mine,) = tree_sum([each] for each in sums.clone().unbind())
        # Nothing but zeros is added to another's, in whatever order.
        everyone = mine.new_zeros(self.processes.size, len(mine))
        everyone[self.processes.rank] = mine
        (total,) = tree_sum([each] for each in self.processes.sum_(everyone).unbind())
        return total
