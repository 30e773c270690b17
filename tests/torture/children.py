"""Processes that do a work together, and their end by SIGKILL: at a moment of the clock, or of their own doing."""

import os
import pathlib
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from tests.pretrain.killed_worker import in_a_child

PATIENCE = 300.0


def started(work: Callable[[], None], count: int, log: pathlib.Path) -> list[int]:
    """Forks `count` processes that do the work, joined as torchrun joins them where there are several."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def member(rank: int) -> Callable[[], None]:
        def joined() -> None:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, sys.stdout.fileno())
            os.dup2(handle, sys.stderr.fileno())
            if count > 1:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
                place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                os.environ.update({name: str(value) for name, value in place.items()})
            work()

        return joined

    return [in_a_child(member(rank)) for rank in range(count)]


def ended(children: Sequence[int], log: pathlib.Path) -> bool:
    """Waits; whether all came to their end well. False where one was killed; an error of their own raises.

    Once one is gone otherwise the others are killed, as torchrun does it.
    """
    left, killed, failed = set(children), False, False
    deadline = time.monotonic() + PATIENCE
    while left:
        for child in list(left):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                left.remove(child)
                code = os.waitstatus_to_exitcode(status)
                killed, failed = killed or code == -signal.SIGKILL, failed or code not in (0, -signal.SIGKILL)
        if (killed or failed or time.monotonic() > deadline) and left:
            failed = failed or not killed
            time.sleep(0.05)
            for child in left:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    # A peer of one that was killed may have noticed it and said so.
    if failed and not killed:
        raise AssertionError(
            f"a process failed by itself, or was not done after {PATIENCE:g} s:\n{log.read_text()[-3000:]}"
        )
    return not killed


def killed_after(children: Sequence[int], seconds: float, chance: random.Random) -> None:
    """Kills all, or one that is drawn, at a moment of the clock."""
    time.sleep(seconds)
    for child in chance.choice([list(children), [chance.choice(list(children))]]):
        os.kill(child, signal.SIGKILL)
