"""Several processes: which one this is, as torchrun or srun says in the environment; tasks on the machines of Ray.

Ray (https://docs.ray.io) runs the tasks of a machine that is lost again elsewhere.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from elmo_fast.errors import ElmoFastError, require

In = TypeVar("In")
Out = TypeVar("Out")


class Place(NamedTuple):
    """Process `number` of `processes`, from 0; and its number on its machine."""

    number: int
    processes: int
    on_machine: int = 0


def place_by_torchrun(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return this process's place among those that torchrun started, None if it did not; raise ElmoFastError."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return _checked(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
    return None


def place_by_srun(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return this process's place among the tasks of a step of srun; None if there is no step, or it has one task."""
    # The script of a job has SLURM_NTASKS too, but is no step.
    if {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"} <= environment.keys():
        step = _checked(environment, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
        return step if step.processes > 1 else None
    return None


def _checked(environment: Mapping[str, str], number: str, processes: str, on_machine: str) -> Place:
    texts = {name: environment.get(name, "0") for name in (number, processes, on_machine)}
    for name, text in texts.items():
        if not text.isdecimal():
            raise ElmoFastError(f"the environment variable {name} must be a number; got {text!r}")
    place = Place(*map(int, texts.values()))
    if place.number >= place.processes:
        raise ElmoFastError(f"{number}={place.number} must be less than {processes}={place.processes}")
    return place


@contextlib.contextmanager
def connected(address: str, purpose: str) -> Iterator[Any]:
    """Connect to a cluster and yield the module ray.

    Args:
        address: of the head node, HOST:PORT; "auto" for the cluster that this machine is part of.
        purpose: what needs Ray, the subject of a sentence.

    Raises: MissingExtraError: Ray is not installed. ElmoFastError: no cluster answers, or it is lost in the block.
    """
    ray = require("ray", "ray", purpose)
    host, _, port = address.rpartition(":")
    try:
        if host:  # Ray itself waits for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise ElmoFastError(
            f"ray: no cluster of Ray at {address!r} ({' '.join(str(error).split())[:200]}); start one with "
            "`ray start --head`, and pass its address"
        ) from error
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise ElmoFastError(
            f"ray: the cluster at {address!r} was lost ({' '.join(str(error).split())[:200]}); when it runs again, run "
            "the same command"
        ) from error
    finally:
        ray.shutdown()


def places(ray: Any, cpus: int, gpu: bool) -> int:
    """Return how many tasks of so many CPUs, or of one GPU, run on the cluster at a time; at least 1."""
    resources = ray.cluster_resources()
    return max(1, int(resources.get("GPU", 0) if gpu else resources.get("CPU", 0) // cpus))


def in_turn(
    ray: Any, function: Callable[[In], Out], tasks: Sequence[In], cpus: int = 1, gpu: bool = False
) -> Generator[Out, None, None]:
    """Yield function(task) in the order of the tasks, which run in the folder of this process on any machine.

    Args:
        ray: as `connected` yields it.
        function: of a module that every machine has installed. It must be safe to run twice: when a machine is lost,
            its tasks run again on others.
        cpus, gpu: what each task takes of a machine.

    An exception of a task is raised here and ends the others.
    """
    remote = ray.remote(num_cpus=cpus, num_gpus=int(gpu), max_retries=-1)(_run)
    waiting = [remote.remote(function, task, os.getcwd()) for task in tasks]
    try:
        while waiting:
            yield ray.get(waiting[0])
            del waiting[0]
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    finally:
        with contextlib.suppress(ray.exceptions.RayError):  # a lost cluster has no tasks
            for task in waiting:
                ray.cancel(task)


def _run(function: Callable[[In], Out], task: In, folder: str) -> Out:
    try:
        os.chdir(folder)
    except OSError as error:
        raise ElmoFastError(
            f"ray: a machine of the cluster cannot open {folder!r} ({error.strerror}); run the command in a folder on "
            "a disk that all machines share"
        ) from error
    return function(task)
