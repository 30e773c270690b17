"""What makes one gradient of those of all processes; the mean over them, after the last backward pass or during it."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.table_exchange import average_gradients


class Exchange(Protocol):
    """Makes one gradient of those of all parts of the rows: a process computes its parts one after the other.

    streams: the biLM over two streams, by which every part is computed; parts: how many each process computes; factor:
    by which the loss of a part is multiplied, so that what `finish` leaves is the gradient of the sum over all rows;
    added: how many parts' gradients autograd adds in a parameter.
    """

    streams: nn.Module
    parts: int
    added: int
    factor: float

    def part(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Is open around the forward and backward pass of part `number`, which adds to the parameters' gradients."""

    def finish(self) -> None:
        """After the last part: leaves the gradient of all rows of all processes in the parameters."""

    def total(self, sums: Tensor) -> Tensor:
        """The sums over all rows of both directions' losses, [2], of those of this process's parts [parts, 2]."""


class MeanExchange:
    """The mean over processes, made after the last part's backward pass, of which a CUDA graph can thus be captured.

    streams: the biLM; tables: the parameters of each table, whose gradients have the same rows; parts: as of
    `Exchange`.
    """

    def __init__(
        self, streams: nn.Module, tables: Sequence[Sequence[nn.Parameter]], processes: Processes, parts: int
    ) -> None:
        self.streams, self.tables, self.processes = streams, tables, processes
        self.parts = self.added = parts
        # The mean over processes of gradients of this is the sum over all rows.
        self.factor = float(processes.size)
        self.apart = [parameter for table in tables for parameter in table]
        self.others = [each for each in streams.parameters() if not any(each is other for other in self.apart)]
        self._flat: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def part(self, number: int) -> contextlib.AbstractContextManager[None]:
        """As `Exchange.part`."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """As `Exchange.finish`."""
        others = self._average_others() if self.processes.distributed else []
        for table in self.tables:
            average_gradients(table, self.processes)
        for each in others:
            each.wait()

    def total(self, sums: Tensor) -> Tensor:
        """As `Exchange.total`."""
        return self.processes.sum_(functools.reduce(torch.add, sums.unbind()))

    @torch.no_grad()
    def _average_others(self) -> list[Any]:
        """Begins to make the gradients of all but the tables their mean: views of one flat tensor, kept, of each dtype;
        what to wait for."""
        begun = []
        kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
        for parameter in self.others:
            if parameter.grad is not None:
                kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        for kind, parameters in kinds.items():
            gradients = [parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]
            self._flat[kind] = flat = torch.cat(gradients, out=self._flat.get(kind))
            begun.append(dist.all_reduce(flat.mul_(1 / self.processes.size), async_op=True))  # as DDP divides
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = part.view_as(parameter)
        return begun


class OverlappedExchange(MeanExchange):
    """The mean over processes, of all gradients but the tables' while the last part's backward pass runs (DDP)."""

    def __init__(
        self, streams: nn.Module, tables: Sequence[Sequence[nn.Parameter]], processes: Processes, parts: int
    ) -> None:
        super().__init__(streams, tables, processes, parts)
        self.streams = wrap_in_ddp(streams, processes, self.apart)

    def part(self, number: int) -> contextlib.AbstractContextManager[None]:
        """As `Exchange.part`: DDP exchanges in the last one."""
        if number < self.parts - 1 and isinstance(self.streams, DistributedDataParallel):
            return self.streams.no_sync()
        return contextlib.nullcontext()

    def _average_others(self) -> list[Any]:
        """DDP has done that."""
        return []


def wrap_in_ddp(module: nn.Module, processes: Processes, apart: Sequence[nn.Parameter] = ()) -> nn.Module:
    """The module; with several processes its dense gradients become their mean over all of them.

    apart: parameters that are left out, because `average_gradients` exchanges them.
    """
    if not processes.distributed:
        return module
    if names := [name for name, parameter in module.named_parameters() if any(parameter is each for each in apart)]:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    # No hook of ours that would add in place of DDP's mean: gloo's threads would run Python, also while it ends.
    wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True)
    wrapped.broadcast_buffers = False
    return wrapped
