"""Tensors of several processes, added in a binary tree of their ranks."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.binary_tree import tree_sum

# Numbers exchanged at a time: enough for few messages, few enough not to double the memory of all gradients.
BUCKET = 1 << 25


class Level(NamedTuple):
    """The processes of a node of the tree that add their sums: group: this process's; size: how many they are."""

    group: dist.ProcessGroup | None
    size: int


class TreeOfProcesses:
    """Adds tensors of all processes in a binary tree of their ranks, P a power of two.

    Each process adds one slice of all: a slice of every process goes to the one that adds it, in the order of the tree,
    and the sum to all. n numbers are 2 (P - 1) / P · n numbers sent by each process, as in a ring.

    levels: of neighbours first. The processes of a machine, where each has the same number of them and their ranks
    follow each other, add theirs before any number leaves it, so that 1 / (processes of a machine) of n does.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.levels: list[Level] = []
        if not processes.distributed:
            return
        size, inside = processes.size, _processes_of_a_machine(processes)
        if inside in (1, size):
            self.levels = [Level(None, size)]
            return
        machine, _ = dist.new_subgroups(inside)
        across, _ = dist.new_subgroups_by_enumeration([[*range(first, size, inside)] for first in range(inside)])
        self.levels = [Level(machine, inside), Level(across, size // inside)]

    @torch.no_grad()
    def add(self, tensors: Sequence[Tensor]) -> None:
        """Leaves the sums over all processes in the tensors, which have the same shapes in each."""
        for bucket in _buckets(tensors) if self.levels else ():
            parts = [each.reshape(-1) for each in bucket]
            parts.append(parts[0].new_zeros(-sum(map(len, parts)) % self.processes.size))
            flat = torch.cat(parts)
            _add_slices(flat, self.levels)
            sums = flat.split([len(each) for each in parts])[: len(bucket)]
            torch._foreach_copy_(list(bucket), [each.view_as(to) for each, to in zip(sums, bucket, strict=True)])


def _add_slices(flat: Tensor, levels: Sequence[Level]) -> None:
    """Adds the processes' numbers in place, [n], n a multiple of their number."""
    (group, size), *others = levels
    received = torch.empty_like(flat)
    dist.all_to_all_single(received, flat, group=group)
    (mine,) = tree_sum([part] for part in received.view(size, -1).unbind())
    if others:
        _add_slices(mine, others)
    dist.all_gather([*flat.view(size, -1).unbind()], mine, group=group)


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


def _processes_of_a_machine(processes: Processes) -> int:
    """How many each machine has, where all have the same number of them in the order of their ranks; 1 elsewhere."""
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    in_order = processes.size % count == 0 and processes.rank % count == int(os.environ.get("LOCAL_RANK", "0"))
    most, fewest = processes.max_(count), -processes.max_(-count)
    return 1 if processes.max_(int(not in_order)) or most != fewest else count
