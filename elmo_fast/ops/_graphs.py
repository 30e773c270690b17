"""CUDA graphs of functions of tensors, by bucket of shapes, so that launching does not cost more than computing."""

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import PerformanceWarning

_capturing = False  # a function that is being captured, or run for the first time before that, captures nothing

Function = Callable[..., tuple[Tensor, ...]]


class Entry(NamedTuple):
    """A captured run: write `inputs`, call `replay`, read `outputs`. function: kept alive, with what it reads."""

    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    function: Function


def enabled(device: torch.device) -> bool:
    """Whether a function may be captured now: on a GPU, not within another capture, not switched off.

    ELMO_FAST_CUDA_GRAPHS=0 in the environment switches captures off.
    """
    return (
        not _capturing
        and device.type == "cuda"
        and os.environ.get("ELMO_FAST_CUDA_GRAPHS") != "0"
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def capture(function: Function, inputs: list[Tensor]) -> Entry:
    """Runs `function` once, so that kernels are compiled and handles exist, then captures it."""
    global _capturing
    _capturing = True
    try:
        with torch.cuda.device(inputs[0].device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                function(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Other threads may allocate meanwhile: only calls of this thread can invalidate the capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs = function(*inputs)
    finally:
        _capturing = False
    return Entry(inputs, outputs, graph.replay, function)


class Graphs:
    """The last `limit` captured runs of one function's buckets, each with memory of its own.

    A key names everything besides its tensors' values that a run depends on. Entries of different streams are apart:
    two streams may not write one entry's inputs. Two threads may not either: hold `lock` from `get` to the copy of the
    outputs.
    """

    def __init__(self, limit: int = 16, capturing: Callable[[Function, list[Tensor]], Entry] = capture) -> None:
        self.limit = limit
        self.capturing = capturing
        self.entries: OrderedDict[tuple[Any, ...], Entry] = OrderedDict()
        self.refused: set[Hashable] = set()
        self.lock = threading.RLock()

    def get(
        self, key: Hashable, device: torch.device, function: Function, empty: Callable[[], list[Tensor]]
    ) -> Entry | None:
        """The entry of `key`, captured now if it is new; None when it cannot be captured, for which a warning said why.

        empty: makes the inputs' memory.
        """
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        if key in self.refused:
            return None
        place = (key, device, stream)
        if place not in self.entries:
            try:
                # Never in inference mode, even if the caller is: tensors made in it cannot be written outside of it.
                with torch.inference_mode(False), torch.no_grad():
                    self.entries[place] = self.capturing(function, empty())
            except RuntimeError as error:
                self.refused.add(key)
                warnings.warn(
                    f"running without a CUDA graph, launch by launch: {error}", PerformanceWarning, stacklevel=3
                )
                return None
            if len(self.entries) > self.limit:
                self.entries.popitem(last=False)
        self.entries.move_to_end(place)
        return self.entries[place]


def bucket(n: int, step: int) -> int:
    """The size a captured graph has for n: the next power of two up to `step`, then multiples of it."""
    return 1 << max(0, n - 1).bit_length() if n <= step else -(-n // step) * step


def write(into: Tensor, value: Tensor, sizes: Sequence[int]) -> None:
    """Copies `value` into the leading part of `into` that has the sizes of its first dimensions."""
    for dimension, size in enumerate(sizes):
        into = into.narrow(dimension, 0, size)
    into.copy_(value)
