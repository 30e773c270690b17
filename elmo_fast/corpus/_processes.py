"""A function over many tasks in processes of their own, which die with this one."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import TypeVar

from elmo_fast.errors import ElmoFastError

Task = TypeVar("Task")
Result = TypeVar("Result")


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_turn(
    function: Callable[[Task], Result], tasks: Sequence[Task], processes: int | None, most: int
) -> Generator[Result, None, None]:
    """Yields function(task) in the order of the tasks; what a task raises is raised here, and the processes end.

    function: of the top level of a module that imports no torch; processes: None takes all cores; most: how many are
    worth their start. Where that leaves one, or there is one task, no process is started.

    Raises ElmoFastError when a process is killed.
    """
    if processes is not None and processes < 1:
        raise ElmoFastError(f"processes must be 1 or more; got {processes}")
    count = min(available_cores() if processes is None else processes, len(tasks), most)
    if count < 2:
        yield from map(function, tasks)
        return
    # New interpreters, not copies of this one, whose torch may hold threads and locks. They hold the reading end of a
    # pipe and nobody but this process the writing one: when it is closed, by an error or by this process's death, they
    # end at once.
    context = multiprocessing.get_context("spawn")
    alive, hold = context.Pipe(duplex=False)
    with contextlib.closing(alive), contextlib.closing(hold):
        executor = ProcessPoolExecutor(count, context, _begin, (alive,))
        try:
            yield from executor.map(function, tasks)
            executor.shutdown()
        except BrokenProcessPool as error:
            raise ElmoFastError(
                f"one of {count} processes was killed, perhaps for want of memory; fewer --processes need less"
            ) from error
        finally:
            hold.close()
            executor.shutdown(cancel_futures=True)


def _begin(alive: Connection) -> None:
    """In a new process: Ctrl-C is the parent's business, and the parent's end is this process's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()


def _end_with(alive: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(1)
