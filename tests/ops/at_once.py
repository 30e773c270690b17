"""Runs all blocks of an interpreted Triton kernel at once, so that they can wait for each other.

Triton's interpreter runs one program after the other. Here each has a thread, one of them runs at a time, and before
every load, store and atomic operation a seeded draw says which runs next: a kernel's own barriers, in some order of the
blocks' memory operations. What it cannot show: weak memory, where a store is seen late (fences, cache modifiers).
"""

import contextlib
import functools
import inspect
import math
import random
import threading

import triton.language as tl  # noqa: F401  (the interpreter looks for it among the globals of what it runs)

SLOWER = 0.05
OPERATIONS = ("create_masked_load", "create_masked_store", "create_atomic_rmw")


class Turns:
    """Whose turn it is, among the threads that have not ended."""

    def __init__(self, builder, seed, often, slow):
        self.builder, self.random, self.often, self.slow = builder, random.Random(seed), often, slow
        self.changed, self.me = threading.Condition(), threading.local()
        self.alive, self.turn, self.errors, self.chances = [], None, [], []

    def run(self, programs):
        threads = [threading.Thread(target=self.one, args=(i, *p), daemon=True) for i, p in enumerate(programs)]
        self.alive = list(range(len(threads)))
        self.chances = [SLOWER if position[0] in self.slow else 1.0 for position, _ in programs]
        self.turn = self.drawn()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def one(self, index, position, function):
        self.me.index, self.me.position = index, position
        self.wait()
        try:
            function()
        except BaseException as error:  # noqa: BLE001  (raised again by `run`)
            self.errors.append(error)
        with self.changed:
            self.alive.remove(index)
            self.turn = self.drawn() if self.alive else None
            self.changed.notify_all()

    def drawn(self):
        return self.random.choices(self.alive, [self.chances[i] for i in self.alive])[0]

    def wait(self):
        with self.changed:
            self.changed.wait_for(lambda: self.turn == self.me.index)
        self.builder.grid_idx = self.me.position

    def switch(self):
        if self.random.random() < self.often:
            with self.changed:
                self.turn = self.drawn()
                self.changed.notify_all()
            self.wait()


@contextlib.contextmanager
def at_once(kernel, seed, *, often=0.5, absent=(), slow=()):
    """Within it, launches of `kernel` (a triton.jit function) run all their blocks at once, but those of `absent`.

    absent: numbers along the grid's first axis, or whole positions. often: the chance that another block may go on,
    before each memory operation; slow: blocks that seldom do.
    """
    from triton.runtime.interpreter import interpreter_builder as builder

    original, waiting, active = kernel.rewrite(), [], []

    def collect(**arguments):
        waiting.append((builder.grid_idx, functools.partial(original, **arguments)))
        if len(waiting) == math.prod(builder.grid_dim):
            programs = [p for p in waiting if p[0][0] not in absent and p[0] not in absent]
            waiting.clear()
            active.append(Turns(builder, seed, often, slow))
            active[-1].run(programs)
            active.clear()

    functools.update_wrapper(collect, original)
    collect.__signature__ = inspect.signature(original)

    def switching(operation):
        def switched(*arguments):
            if active:
                active[-1].switch()
            return operation(*arguments)

        return switched

    kernel.rewritten_fn[kernel.fn] = collect
    for name in OPERATIONS:
        setattr(builder, name, switching(getattr(builder, name)))
    try:
        yield
    finally:
        kernel.rewritten_fn[kernel.fn] = original
        for name in OPERATIONS:
            delattr(builder, name)
