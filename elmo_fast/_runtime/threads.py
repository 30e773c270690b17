"""Bound, choose and temporarily set torch's number of threads; run calls in background threads, results in order.

Threads of Python overlap where the work is done without the interpreter's lock: torch's operators, numpy's on large
arrays, reads and writes.
"""

import contextlib
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from elmo_fast.errors import ElmoFastError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Environment variables that set the number of threads; they override our choice.
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Other programs that use less of a processor than this cost us nothing.
UNNOTICED = 0.25
# A shorter time is meaningless: the system counts in hundredths of a second.
SHORTEST = 0.5


def processors() -> set[int]:
    """Return the ids of the processors that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def check_threads(count: int, name: str) -> None:
    """Raise ElmoFastError naming the argument unless the number of threads is at least 1 and not absurdly large.

    OpenMP crashes with a segmentation fault when the system refuses to create more threads.
    """
    most = max(64, 8 * len(processors()))
    if not 1 <= count <= most:
        raise ElmoFastError(
            f"{name} must be 1 to {most} on this machine of {len(processors())} processors; got {count}"
        )


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set the number of threads while open; None changes nothing. Raises ElmoFastError as check_threads."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        check_threads(count, "threads")
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def let_waiting_threads_sleep() -> None:
    """Before torch is imported: OpenMP's threads sleep between torch's operators, and leave the processor to others.

    Left alone they spin for some milliseconds, longer than it takes until the next operator, and so all the time. What
    the user chose stays.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def seconds_of_others() -> float | None:
    """How long this process's processors have worked for others since the system started; None if unknown."""
    names, busy = {f"cpu{number}" for number in processors()}, 0
    try:
        with open("/proc/stat", encoding="ascii") as file:
            for line in file:
                name, *counts = line.split()
                if name in names:  # user, nice, system, idle, waiting, interrupts of two kinds, taken by other systems
                    busy += sum(int(count) for i, count in enumerate(counts[:8]) if i not in (3, 4))
    except (OSError, ValueError):
        return None
    return busy / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])  # its own, and its children's once they have ended


STARTED = time.monotonic(), seconds_of_others()


def busy_processors(since: tuple[float, float | None] = STARTED) -> float | None:
    """How many processors other programs have kept busy since then; None if unknown."""
    (begin, before), now, others = since, time.monotonic(), seconds_of_others()
    if before is None or others is None or now - begin < SHORTEST:
        return None
    return max(0.0, (others - before) / (now - begin))


def unhindered_threads(own: int) -> tuple[int, str]:
    """How many threads to start, at most `own`, and why: a thread that waits for a processor delays all others.

    own: torch's choice, which is kept if one of VARIABLES made it.
    """
    if named := [name for name in VARIABLES if name in os.environ]:
        return own, f"{named[0]} is set"
    busy = busy_processors()
    if busy is None:
        return own, "torch's choice"
    count = len(processors())
    free = count - math.ceil(busy - UNNOTICED)
    reason = f"other programs use {busy:.1f} of {count} CPUs" if busy >= 0.05 else f"all {count} CPUs are idle"
    return max(1, min(own, free)), reason


class BackgroundThreads(ThreadPoolExecutor):
    """`count` threads, each of which uses `torch_threads` of torch's.

    When the block ends, calls that have not begun are dropped, and it waits for those that have.
    """

    def __init__(self, count: int = 1, torch_threads: int = 1) -> None:
        import torch

        super().__init__(count, "elmo_fast", _use, (torch_threads,))
        own, all_there = torch.get_num_threads(), threading.Barrier(count)
        for future in [self.submit(all_there.wait) for _ in range(count)]:
            future.result()
        torch.set_num_threads(own)  # torch takes the last number set for every thread that is still to begin

    def __exit__(self, *error: object) -> None:
        self.shutdown(cancel_futures=True)


def _use(torch_threads: int) -> None:
    import torch

    torch.get_num_threads()  # a thread's first question gives it the number of all; only then it keeps its own
    torch.set_num_threads(torch_threads)


def prefetch(
    threads: Executor | None, call: Callable[[Item], Result], items: Iterable[Item], depth: int = 1
) -> Iterator[Result]:
    """Apply `call` to the items in order, prefetching `depth` results; without threads nothing runs ahead.

    `items` are read on the caller's thread. An exception of a call is raised in place of its result.
    """
    if threads is None:
        yield from map(call, items)
        return
    futures: deque[Future[Result]] = deque()
    for item in items:
        futures.append(threads.submit(call, item))
        del item  # or it would stay in memory until the next one is there
        if len(futures) > depth:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()
