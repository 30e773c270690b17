"""Captures a function of tensors as a CUDA graph; the graphs of one stream share their memory."""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]

_thread = threading.local()  # `capturing`: within a capture, and the run before it, a thread captures nothing else
_one_capture = threading.Lock()  # torch allows one at a time in a process


class Entry(NamedTuple):
    """A captured run: write `inputs`, call `replay`, read `outputs`. function: kept alive, with what it reads."""

    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    function: Function


class Evictable(Protocol):
    """What keeps graphs of a pool, and can drop them."""

    def evict(self) -> bool:
        """Drops all graphs; whether there was any."""


class Pool:
    """The memory of all graphs that are replayed on one stream, one after the other.

    A replay overwrites the results of others, and two threads may share a stream. So hold `lock` from the first write
    to an entry's inputs to the last read of its outputs.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.users: weakref.WeakSet[Evictable] = weakref.WeakSet()
        self.handle: Any = None
        self.stream: Any = None

    def open(self) -> None:
        """Makes the stream and the handle of all captures; memory is reused only within one stream."""
        if self.stream is None:
            self.stream, self.handle = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def evict(self) -> bool:
        """Drops all graphs and returns their memory to the device; whether there was any."""
        dropped = [user.evict() for user in list(self.users)]
        if any(dropped) and self.device.type == "cuda":
            gc.collect()  # an error may hold memory in a cycle with its traceback
            torch.cuda.empty_cache()
        return any(dropped)


_pools: dict[tuple[torch.device, int], Pool] = {}
_pools_lock = threading.Lock()


def pool_of(device: torch.device) -> Pool:
    """The pool of the device's current stream."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    with _pools_lock:
        return _pools.setdefault((device, stream), Pool(device))


def enabled(device: torch.device) -> bool:
    """Whether a function may be captured now: on a GPU, not within another capture, not switched off.

    ELMO_FAST_CUDA_GRAPHS=0 in the environment switches captures off.
    """
    return (
        not getattr(_thread, "capturing", False)
        and device.type == "cuda"
        and os.environ.get("ELMO_FAST_CUDA_GRAPHS") != "0"
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def capture(function: Function, inputs: list[Tensor], pool: Pool, *, run_before: bool = True) -> Entry:
    """Runs `function` once, so that kernels are compiled and handles exist, then captures it into the pool."""
    _thread.capturing = True
    try:
        with torch.cuda.device(inputs[0].device), _one_capture:
            pool.open()
            user = torch.cuda.current_stream()
            with torch.cuda.stream(
                pool.stream
            ):  # restored here, because torch.cuda.graph does not restore it if its end fails
                pool.stream.wait_stream(user)
                if run_before:
                    function(*inputs)
                graph = torch.cuda.CUDAGraph()
                # Other threads may pin or allocate memory meanwhile: only calls of this one invalidate the capture.
                with torch.cuda.graph(
                    graph, pool=pool.handle, stream=pool.stream, capture_error_mode="thread_local"
                ):  # fmt: skip
                    outputs = function(*inputs)
            user.wait_stream(pool.stream)
    finally:
        _thread.capturing = False
    return Entry(inputs, outputs, graph.replay, function)


def capture_changing(function: Function, inputs: list[Tensor], pool: Pool) -> Entry:
    """As `capture`, without the first run: for a function with side effects, which the caller has run before."""
    return capture(function, inputs, pool, run_before=False)


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is that a device's memory ran out."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False
