"""Processes that do a work together, and their end by SIGKILL: at a moment of the clock, or of their own doing."""

import os
import pathlib
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence

PATIENCE = 300.0


def fork(work) -> int:
    """Return the process that does the work; it never returns into the caller's code."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    return child


def fork_group(work: Callable[[], None], count: int, log: pathlib.Path) -> list[int]:
    """Fork `count` processes that do the work; several are joined as torchrun joins them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def member(rank: int) -> Callable[[], None]:
        def joined() -> None:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, sys.stdout.fileno())
            os.dup2(handle, sys.stderr.fileno())
            # pytest's own streams write a line's end by itself, and another process's line can come before it.
            sys.stdout = sys.stderr = os.fdopen(handle, "w", buffering=1)
            if count > 1:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
                place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                os.environ.update({name: str(value) for name, value in place.items()})
            work()

        return joined

    return [fork(member(rank)) for rank in range(count)]


def all_finish(children: Sequence[int], log: pathlib.Path) -> bool:
    """Wait for all; False if one was killed.

    As in torchrun, the others are killed then. Raises AssertionError with the log if one fails by itself, or all take
    too long.
    """
    left, killed, failed = set(children), False, False
    deadline = time.monotonic() + PATIENCE
    while left and not killed and not failed:
        time.sleep(0.002)
        # Twice: a peer of one that was killed may have noticed it and ended with an error, and was then seen first.
        codes = [*_reaped(left), *_reaped(left)]
        killed = -signal.SIGKILL in codes
        failed = any(codes) or time.monotonic() > deadline
    if left:
        time.sleep(0.05)
    for child in left:  # killed here, so their exit codes mean nothing
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if failed and not killed:
        raise AssertionError(
            f"a process failed by itself, or was not done after {PATIENCE:g} s:\n{log.read_text()[-3000:]}"
        )
    return not killed


def _reaped(left: set[int]) -> list[int]:
    """Return the exit codes of finished processes, and remove these from `left`."""
    actual = [(child, *os.waitpid(child, os.WNOHANG)) for child in list(left)]
    left -= {child for child, done, _ in actual if done}
    return [os.waitstatus_to_exitcode(status) for _, done, status in actual if done]


def kill_after(children: Sequence[int], seconds: float, chance: random.Random) -> None:
    """Kill all, or a random one, after `seconds`."""
    time.sleep(seconds)
    for child in chance.choice([list(children), [chance.choice(list(children))]]):
        os.kill(child, signal.SIGKILL)
