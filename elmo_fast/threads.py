"""How many CPU threads torch uses: a bound, a choice that leaves room to other programs, and that many for a while."""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError

# What the system's libraries take for the number of threads; who sets one has chosen.
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Others who take less than this of a processor are waited for without loss.
UNNOTICED = 0.25
# A shorter time says nothing: the system counts in hundredths of a second.
SHORTEST = 0.5


def processors() -> set[int]:
    """The numbers of the processors that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def check_threads(count: int, name: str) -> None:
    """Raises ElmoFastError that names the argument unless there are 1 or more threads, and not so many that none runs.

    The OpenMP library ends the process with a segmentation fault where the system gives it no more threads.
    """
    most = max(64, 8 * len(processors()))
    if not 1 <= count <= most:
        raise ElmoFastError(
            f"{name} must be 1 to {most} on this machine of {len(processors())} processors; got {count}"
        )


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """That many while open, then as many as before; None: as they are. Raises ElmoFastError as check_threads."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        check_threads(count, "threads")
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Usage(NamedTuple):
    """At a moment: the clock, the seconds of all kinds of work of the processors, and those of this process."""

    clock: float
    busy: float
    own: float


def usage() -> Usage | None:
    """How much this process's processors have worked since the system started; None where it does not say."""
    names, busy = {f"cpu{number}" for number in processors()}, 0
    try:
        with open("/proc/stat", encoding="ascii") as file:
            for line in file:
                name, *counts = line.split()
                if name in names:  # user, nice, system, idle, waiting, interrupts of two kinds, taken by other systems
                    busy += sum(int(count) for i, count in enumerate(counts[:8]) if i not in (3, 4))
    except (OSError, ValueError):
        return None
    return Usage(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), time.process_time())


STARTED = usage()


def busy_processors(since: Usage | None = STARTED) -> float | None:
    """How many processors other programs have kept busy since then; None where the system does not say."""
    now = usage()
    if since is None or now is None or now.clock - since.clock < SHORTEST:
        return None
    others = (now.busy - since.busy) - (now.own - since.own)
    return max(0.0, others / (now.clock - since.clock))


def unhindered_threads(own: int) -> tuple[int, str]:
    """How many threads to start, at most `own`, and why: one that waits for its processor lets all others wait.

    own: torch's choice, which holds where VARIABLES made it.
    """
    if named := [name for name in VARIABLES if name in os.environ]:
        return own, f"{named[0]} is set"
    busy = busy_processors()
    if busy is None:
        return own, "torch's choice"
    free = len(processors()) - math.ceil(busy - UNNOTICED)
    told = f"other programs keep {busy:.1f} of {len(processors())} processors busy"
    return max(1, min(own, free)), told
