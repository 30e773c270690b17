"""Tasks on the machines of a Ray cluster (https://docs.ray.io): those of a machine that is lost run again elsewhere."""

import contextlib
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from elmo_fast.errors import ElmoFastError, require

In = TypeVar("In")
Out = TypeVar("Out")


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


def results_in_order(
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
