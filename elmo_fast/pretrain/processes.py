"""The processes that train together: rank, rows, collectives."""

import gc
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.process import place_by_torchrun

Result = TypeVar("Result")
# A process that waits this long for another one gives up; preparing a large corpus is the longest wait.
PATIENCE = timedelta(hours=2)


class Processes:
    """This process, `rank` of `size` that train together; alone unless torchrun launched several.

    Raises nothing; a peer that dies ends the others' exchange with an error, and the launcher (torchrun) restarts all.
    """

    def __init__(self) -> None:
        self.distributed = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.distributed else 0
        self.size = dist.get_world_size() if self.distributed else 1

    @property
    def leads(self) -> bool:
        """Whether this process reports and writes files for all."""
        return self.rank == 0

    def assign_rows(self, rows: int, parts: int = 1) -> tuple[int, int]:
        """The first of this process's rows and how many it holds, cut into `parts` equal micro-batches.

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
        """Adds the processes' tensors, in place; on a GPU nothing waits for it."""
        if self.distributed:
            dist.all_reduce(tensor)
        return tensor

    def max_(self, value: int) -> int:
        """The largest of the processes' numbers."""
        if not self.distributed:
            return value
        found = torch.tensor(value)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def gather(self, rows: Tensor, dim: int) -> Tensor | None:
        """The processes' rows in their order, on the CPU of the one that leads; None to the others."""
        rows = rows.detach().cpu().contiguous()
        if not self.distributed:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.size)] if self.leads else None
        dist.gather(rows, parts)
        return None if parts is None else torch.cat(parts, dim)

    def run_on_leader(self, work: Callable[[], Result]) -> Result:
        """What `work` gives the process that leads, handed to all; its ElmoFastError or OSError is raised by all."""
        if not self.distributed:
            return work()
        told: list[Any] = [None, None]
        if self.leads:
            try:
                told[0] = work()
            except (ElmoFastError, OSError) as error:
                told[1] = error
        dist.broadcast_object_list(told, device=torch.device("cpu"))
        if told[1] is not None:
            raise told[1]
        found: Result = told[0]
        return found

    def run_leader_first(self, work: Callable[[bool], Result]) -> Result:
        """What `work(leads)` gives each process; an ElmoFastError or OSError of the one that leads is raised by all."""
        mine: list[Result] = []
        self.run_on_leader(lambda: mine.append(work(True)))
        return mine[0] if mine else work(False)

    def check_same(self, told: str, what: str) -> None:
        """Raises ElmoFastError in all processes when one of them runs another thing than the one that leads."""
        leaders = self.run_on_leader(lambda: told)
        if self.max_(int(told != leaders)):
            raise ElmoFastError(
                f"the processes do not agree on {what} (here {told}, where the first one runs {leaders}); on several "
                "machines all need the same files under the same names, save_dir on a file system that all of them see"
            )


def local_device(name: str) -> torch.device:
    """The device of this process: "cuda" names the GPU of its place on its machine."""
    device = torch.device(name)
    if device.type == "cuda" and device.index is None and (place := place_by_torchrun()) is not None:
        device = torch.device("cuda", place.on_machine)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _store() -> dist.Store | None:
    """Where the processes of this attempt find each other; None leaves it to torch.

    torchrun's own store outlives a restart, and with it the addresses of processes that are dead
    (https://github.com/pytorch/pytorch/issues/135712), so each attempt keeps its keys apart. Machines count their
    restarts each for itself: over several of them the attempts have no common name.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
        if os.environ["LOCAL_RANK"] == "0" and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
            warnings.warn(
                "after a restart, processes may wait for those that died, because torchrun's rendezvous shares its "
                "store with them; start torchrun on every machine with --rdzv-backend=c10d, and set "
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment",
                stacklevel=4,
            )
        return None
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
    return dist.PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


class join_processes:
    """While open, the processes that torchrun started form a group: gloo between CPUs, NCCL between GPUs.

    Raises ElmoFastError where a connection to another process breaks.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Processes:
        place = place_by_torchrun()
        self.began = place is not None and not dist.is_initialized()
        if place is not None and self.began:
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            rank, size, _ = place
            dist.init_process_group(backend, store=_store(), rank=rank, world_size=size, timeout=PATIENCE)
        return Processes()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.began:
            # DistributedDataParallel is in a reference cycle and holds the group, whose threads must end before Python.
            gc.collect()
            dist.destroy_process_group()
            gc.collect()
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error)):
            raise ElmoFastError(
                "another process of this run has ended, or the network to it is gone; its own messages say why. The "
                "same command, run again, resumes from the newest checkpoint. The connection's error: "
                f"{str(error).splitlines()[0]}"
            ) from error
