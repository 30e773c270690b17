"""Calls that run in threads of their own beside the caller, their results in order.

Threads of Python overlap where the work is done without the interpreter's lock: torch's operators, numpy's on large
arrays, reads and writes.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Beside(ThreadPoolExecutor):
    """`count` threads, each of which uses `torch_threads` of torch's.

    When the block ends, calls that have not begun are dropped, and it waits for those that have.
    """

    def __init__(self, count: int = 1, torch_threads: int = 1) -> None:
        import torch

        super().__init__(count, "elmo_fast", _use, (torch_threads,))
        own, all_there = torch.get_num_threads(), threading.Barrier(count)
        for begun in [self.submit(all_there.wait) for _ in range(count)]:
            begun.result()
        torch.set_num_threads(own)  # torch takes the last number set for every thread that is still to begin

    def __exit__(self, *error: object) -> None:
        self.shutdown(cancel_futures=True)


def _use(torch_threads: int) -> None:
    import torch

    torch.get_num_threads()  # a thread's first question gives it the number of all; only then it keeps its own
    torch.set_num_threads(torch_threads)


class AtOnce(Executor):
    """Each call runs when it is submitted, on the caller's thread."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(call(*arguments, **named))
        return done


def beside_torch() -> Executor:
    """A thread beside the caller's operators; where torch has but one thread there is no place beside it: AtOnce."""
    import torch

    return Beside() if torch.get_num_threads() > 1 else AtOnce()


def ahead(threads: Executor, call: Callable[[Item], Result], items: Iterable[Item], depth: int = 1) -> Iterator[Result]:
    """call(item) for each item, in order, `depth` calls ahead of the one whose result is asked for.

    `items` are read on the caller's thread. An exception of a call is raised in place of its result. AtOnce is never
    ahead.
    """
    begun: deque[Future[Result]] = deque()
    for item in items:
        begun.append(threads.submit(call, item))
        del item  # or it would stay in memory until the next one is there
        if isinstance(threads, AtOnce) or len(begun) > depth:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()
