"""Gradients of virtual shards, added in one binary tree: the same bits on any number of processes."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmo_fast.ops._table_rows import coalesced
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.gradient_exchange import all_ids

# Numbers exchanged at a time: enough for few calls, few enough not to double the memory of all gradients.
BUCKET = 1 << 23


class BinaryTree:
    """The sum of a power of two of leaves in one fixed order: neighbours in pairs, then pairs of pairs.

    A leaf is a list of tensors, which the tree owns: sums are made in place of the left one as soon as both sides are
    whole, so log2 of the number of leaves are held at a time, and one more.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, list[Tensor]]] = []

    def add(self, leaf: Iterable[Tensor]) -> None:
        """Adds the next leaf."""
        leaves, right = 1, list(leaf)
        while self._sums and self._sums[-1][0] == leaves:
            _, left = self._sums.pop()
            torch._foreach_add_(left, right)
            leaves, right = 2 * leaves, left
        self._sums.append((leaves, right))

    def total(self) -> list[Tensor]:
        """The sum of all leaves."""
        ((_, total),) = self._sums
        return total


def tree_sum(leaves: Iterable[Iterable[Tensor]]) -> list[Tensor]:
    """The sum of a power of two of leaves, as `BinaryTree` adds them, in place of the first."""
    tree = BinaryTree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.total()


@torch.no_grad()
def add_over_processes(tensors: Sequence[Tensor], processes: Processes) -> None:
    """Adds the processes' tensors in a binary tree of their ranks, in place.

    Each process adds one slice of all: n numbers are 2 (P - 1) / P · n numbers sent by each process, as in a ring.
    """
    if not processes.distributed:
        return
    for bucket in _buckets(tensors):
        parts = [each.reshape(-1) for each in bucket]
        parts.append(parts[0].new_zeros(-sum(map(len, parts)) % processes.size))
        flat = torch.cat(parts)
        received = torch.empty_like(flat)
        dist.all_to_all_single(received, flat)
        (mine,) = tree_sum([slice_] for slice_ in received.view(processes.size, -1).unbind())
        dist.all_gather([*flat.view(processes.size, -1).unbind()], mine)
        sums = flat.split([len(each) for each in parts])[: len(bucket)]
        torch._foreach_copy_(list(bucket), [each.view_as(to) for each, to in zip(sums, bucket, strict=True)])


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in their order, some at a time, of one dtype each."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or sum(each.numel() for each in bucket) >= BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


class TreeExchange:
    """The sum of the gradients of S virtual shards of the rows, an `Exchange` whose result does not depend on P.

    A process computes its S / P neighbouring shards one after the other, each by itself and therefore with the same
    bits wherever that is. Dense gradients are added in a binary tree: of the shards of a process, then of the
    processes. Of the tables, so are blocks of the rows that any shard uses; a row that a shard does not use is zeros.

    streams, tables: as of `MeanExchange`; parameters: all that are trained; shards: S, a power of two.
    Raises ElmoFastError where P does not divide S.
    """

    factor = 1.0

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
        add_over_processes(dense, self.processes)
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
        blocks = tree_sum([_block(gradient, union) for gradient in leaf] for leaf in leaves)
        add_over_processes(blocks, self.processes)
        for parameter, block in zip(table, blocks, strict=True):
            parameter.grad = torch.sparse_coo_tensor(
                union[None], block, parameter.shape, is_coalesced=True, check_invariants=False
            )

    def total(self, sums: Tensor) -> Tensor:
        """As `Exchange.total`: in the same tree."""
        (mine,) = tree_sum([each] for each in sums.clone().unbind())
        # Nothing but zeros is added to another's, in whatever order.
        everyone = mine.new_zeros(self.processes.size, len(mine))
        everyone[self.processes.rank] = mine
        (total,) = tree_sum([each] for each in self.processes.sum_(everyone).unbind())
        return total


def _block(gradient: Tensor, ids: Tensor) -> Tensor:
    """The rows `ids` of a coalesced gradient [V, ...], zeros where it has none."""
    block = gradient.values().new_zeros(len(ids), *gradient.shape[1:])
    block[torch.searchsorted(ids, gradient.indices()[0])] = gradient.values()
    return block
