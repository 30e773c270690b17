"""Runs a function over many tasks in child processes, which end with this one."""

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

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.threads import processors

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_turn(
    function: Callable[[Task], Result], tasks: Sequence[Task], processes: int | None, most: int
) -> Generator[Result, None, None]:
    """Yields function(task) in the order of the tasks; an exception in a task is raised here and ends the processes.

    function: at the top level of a module that does not import torch; processes: None uses all cores; most: how many
    are worth starting. With one process or one task, no child is started.

    Raises ElmoFastError if a process is killed.
    """
    check_counts(processes=processes)
    count = min(len(processors()) if processes is None else processes, len(tasks), most)
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
                f"one of {count} processes was killed, perhaps because memory ran out; use fewer --processes"
            ) from error
        finally:
            hold.close()
            executor.shutdown(cancel_futures=True)


def _begin(alive: Connection) -> None:
    """Runs in a new process: leaves Ctrl-C to the parent, and ends when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()


def _end_with(alive: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(1)
