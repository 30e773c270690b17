"""The processes that train together: rank, rows, collectives."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elmo_fast._runtime.devices import device_named
from elmo_fast._runtime.process import rank_of_torchrun
from elmo_fast.errors import ElmoFastError

Result = TypeVar("Result")
# A process that waits this long for another one gives up; preparing a large corpus is the longest wait.
PATIENCE = timedelta(hours=2)


class Processes:
    """Process `rank` of `size` that train together; alone unless torchrun launched several.

    Raises nothing; a peer that dies ends the others' exchange with an error, and the launcher (torchrun) restarts all.
    """

    def __init__(self) -> None:
        self.distributed = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.distributed else 0
        self.size = dist.get_world_size() if self.distributed else 1

    @property
    def leads(self) -> bool:
        """True for the process that reports and writes files for all."""
        return self.rank == 0

    def assign_rows(self, rows: int, parts: int = 1) -> tuple[int, int]:
        """Return the first of this process's rows and how many it holds, cut into `parts` equal micro-batches.

        Raises ElmoFastError when the rows cannot be divided evenly.
        """
        if rows % (self.size * parts):
            fitting = ", ".join(str(n) for n in range(1, rows + 1) if rows % (n * parts) == 0)
            raise ElmoFastError(
                f"batch_size={rows} rows cannot be shared out evenly among {self.size} processes of "
                f"micro_batches={parts} each; start as many processes as one of: {fitting or 'none'}, or start a new "
                "run with another batch_size"
            )
        count = rows // self.size
        return self.rank * count, count

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add the processes' tensors, in place; on a GPU nothing waits for it."""
        if self.distributed:
            dist.all_reduce(tensor)
        return tensor

    def max_(self, value: int) -> int:
        """Return the largest of the processes' numbers."""
        if not self.distributed:
            return value
        largest = torch.tensor(value, device="cpu")
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def gather(self, rows: Tensor, dim: int) -> Tensor | None:
        """Return the processes' rows in their order, on the CPU of the leader; None to the others."""
        rows = rows.detach().cpu().contiguous()
        if not self.distributed:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.size)] if self.leads else None
        dist.gather(rows, parts)
        return None if parts is None else torch.cat(parts, dim)

    def run_on_leader(self, work: Callable[[], Result]) -> Result:
        """Return to all what `work` gives the leader; all raise its ElmoFastError or OSError."""
        if not self.distributed:
            return work()
        outcome: list[Any] = [None, None]
        if self.leads:
            try:
                outcome[0] = work()
            except (ElmoFastError, OSError) as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome, device=torch.device("cpu"))
        if outcome[1] is not None:
            raise outcome[1]
        result: Result = outcome[0]
        return result

    def run_leader_first(self, work: Callable[[bool], Result]) -> Result:
        """Return what `work(leads)` gives each process, the leader first; all raise its ElmoFastError or OSError."""
        results: list[Result] = []
        self.run_on_leader(lambda: results.append(work(True)))
        return results[0] if results else work(False)

    def check_same(self, values: Mapping[str, Any]) -> None:
        """Raise ElmoFastError in all processes if one of them has a different value of that name from the leader's.

        values: name -> what decides the run, as text. Paths too: machines share a file system, or have the same files
        under the same names. Not "threads": machines differ in their cores, and the number changes no result.
        """
        if not self.distributed:
            return
        everyone: list[dict[str, str]] = [{} for _ in range(self.size)]
        dist.all_gather_object(everyone, {name: str(each) for name, each in values.items() if name != "threads"})
        leaders = everyone[0]
        for rank, others in enumerate(everyone):
            # Other versions may have other options.
            if names := [name for name in {**leaders, **others} if leaders.get(name) != others.get(name)]:
                differing = "; ".join(
                    f"{name} is {others.get(name)} in process {rank}, {leaders.get(name)} in process 0"
                    for name in names
                )
                raise ElmoFastError(
                    f"the processes do not agree: {differing}; start all with the same command; on several machines "
                    "all need the same files under the same names, save_dir on a file system that all of them see"
                )


def local_device(name: str) -> torch.device:
    """Return the device of this process: "cuda" names the GPU of its place on its machine."""
    device = device_named(name)
    if device.type == "cuda":
        if device.index is None:
            launched = rank_of_torchrun()
            number = torch.cuda.current_device() if launched is None else launched.local_rank
            device = device_named(f"cuda:{number}", f"device of process {number} of this machine")
        torch.cuda.set_device(device)
    return device


def _store() -> dist.Store | None:
    """Return the store where the processes of this attempt find each other; None leaves it to torch.

    torchrun's own store outlives a restart, and with it the addresses of processes that are dead
    (https://github.com/pytorch/pytorch/issues/135712), so each attempt keeps its keys apart. Machines count their
    restarts each for itself: over several of them the attempts have no common name, and torchrun must start with
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (docs/pretraining_guide.md).
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
        return None
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
    return dist.PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


@contextlib.contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """Form a group of the processes that torchrun started, while open: gloo between CPUs, NCCL between GPUs.

    Raises ElmoFastError where a connection to another process breaks.
    """
    launched = rank_of_torchrun()
    begins = launched is not None and not dist.is_initialized()
    if launched is not None and begins:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        rank, size, _ = launched
        dist.init_process_group(backend, store=_store(), rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Processes()
    except RuntimeError as error:  # DistError is one
        if not isinstance(error, dist.DistError) and "gloo/transport" not in str(error):
            raise
        raise ElmoFastError(
            "another process of this run has ended, or the network to it is gone; its own messages say why. The "
            "same command, run again, resumes from the newest checkpoint. The connection's error: "
            f"{str(error).splitlines()[0]}"
        ) from error
    finally:
        if begins:
            dist.destroy_process_group()
