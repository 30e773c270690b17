"""CUDA graphs of functions of tensors: for a biLM's forward pass and for a training step.

Without them both would wait for hundreds of launches. docs/gpu.md explains when they are captured, and how they share
memory.
"""

import contextlib
import gc
import operator
import os
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from elmo_fast._runtime.devices import bytes_needed, parts_of
from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _packed

Pieces = Generator[Callable[[], object], None, tuple[Tensor, ...]]
"""A function in pieces: yields what the host does between two of them, such as an exchange with other processes."""
Function = Callable[..., tuple[Tensor, ...] | Pieces]
Spec = tuple[Sequence[int], torch.dtype]
"""(shape, dtype)"""
Result = TypeVar("Result")

IDLE = 4  # times the limit of graphs: a graph that has not run for as many runs gives way to another

_one_capture = threading.Lock()  # torch allows one capture at a time in a process
_given_up = threading.Event()  # no way of capturing worked: after failed captures torch may not be what it was


class TensorsRead:
    """Tensors that a graph reads and writes by address: equal while they are the same ones, in place and not written.

    Written in a way that torch counts, or before `refresh_weights`. It holds them, since an address may be used again.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.places = [(tensor.data_ptr(), tensor.dtype, tensor.requires_grad) for tensor in tensors]
        self.generation = _packed.generation()
        self.versions = [-1 if each.is_inference() else each._version for each in tensors]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorsRead)
            and len(self.tensors) == len(other.tensors)
            and all(map(operator.is_, self.tensors, other.tensors))
            and (self.places, self.versions, self.generation) == (other.places, other.versions, other.generation)
        )

    __hash__ = None  # type: ignore[assignment]


class Entry(NamedTuple):
    """Captured run: write `inputs`, call `replay`, read `outputs`.

    function: kept alive, with everything that it reads.
    """

    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]
    replay: Callable[[], object]
    function: Function


def pieces_of(function: Function, *inputs: Any) -> Pieces:
    """Return the pieces of a call, only one if it yields nothing; nothing runs before the first `next`."""
    result = function(*inputs)
    return (yield from result) if isinstance(result, GeneratorType) else result  # type: ignore[return-value]


def run_pieces(function: Function, *inputs: Any) -> tuple[Tensor, ...]:
    """Run a function's pieces without a graph, and what the host does between them; return its result."""
    pieces = pieces_of(function, *inputs)
    while True:
        try:
            between = next(pieces)
        except StopIteration as end:
            outputs: tuple[Tensor, ...] = end.value
            return outputs
        between()


class _PoolGraphs:
    """Graphs of one `Graphs` in one pool, the least recently used first.

    seen: keys seen so far, and how much memory was available when it ran out during their capture, 0 if it did not;
    runs: number of runs so far; used: the run in which each graph was last used; memory: of all inputs, since one
    graph runs at a time.
    """

    def __init__(self) -> None:
        self.version: object = None
        self.entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self.seen: dict[Hashable, int] = {}
        self.runs = 0
        self.used: dict[Hashable, int] = {}
        self.memory: Tensor | None = None

    def drop(self) -> bool:
        """Drop all graphs; return whether there were any."""
        some = bool(self.entries)
        self.entries.clear()
        self.seen = {key: short for key, short in self.seen.items() if short}
        self.used.clear()
        self.memory = None
        return some

    def may_capture(self, key: Hashable, device: torch.device) -> bool:
        """Return whether to capture a key: one seen before and, if memory ran out, with an eighth more of it now."""
        if key not in self.seen:
            self.seen[key] = 0
            return False
        short = self.seen[key]
        return not _given_up.is_set() and (not short or available_memory(device) > short + short // 8)

    def has_room(self, limit: int) -> bool:
        """Return whether another graph may be captured, after dropping one that has not been used for long.

        One that is still in use stays: with more sizes in turn than graphs, each would be dropped before its next use.
        """
        if len(self.entries) < limit:
            return True
        oldest = next(iter(self.entries))
        if self.runs - self.used[oldest] <= IDLE * limit:
            return False
        del self.entries[oldest], self.used[oldest], self.seen[oldest]
        return True

    def inputs(self, specs: Sequence[Spec], device: torch.device) -> list[Tensor]:
        """Return tensors of these shapes and dtypes in the memory of all inputs; their values are zeros."""
        size = bytes_needed(specs)
        if self.memory is None or len(self.memory) < size:  # graphs of the memory before keep it
            grown = 0 if self.memory is None else len(self.memory) * 3 // 2
            self.memory = torch.empty(max(size, grown), dtype=torch.uint8, device=device)
        return [part.zero_() for part in parts_of(self.memory, specs)]


class Pool:
    """Memory of all graphs that are replayed on one stream, one after the other.

    A replay overwrites the results of others, and two threads may share a stream. So hold `lock` from the first write
    to an entry's inputs to the last read of its outputs.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.users: weakref.WeakSet[_PoolGraphs] = weakref.WeakSet()
        self.handle: Any = None
        self.stream: Any = None

    def open(self) -> None:
        """Create the stream of all captures, and the handle of their memory, which is reused only within one stream.

        Without a graph left the handle is a new one: torch refuses a capture into a pool that no graph uses any more,
        as long as a tensor in its memory is alive.
        """
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        if self.handle is None or not any(user.entries for user in self.users):
            self.handle = torch.cuda.graph_pool_handle()

    def abandon(self) -> None:
        """Let torch's allocator forget a failed capture; the next one uses other memory.

        torch 2.11 leaves the allocator in the capture if ending it raises, and nothing works after that. If torch has
        ended it, the first call raises, and the graph itself releases the memory.
        """
        with contextlib.suppress(Exception):
            torch._C._cuda_endAllocateToPool(self.device.index, self.handle)
            torch._C._cuda_releasePool(self.device.index, self.handle)
        self.handle = None

    def drop(self) -> bool:
        """Drop all graphs and release their memory to the device; return whether there were any."""
        dropped = [user.drop() for user in list(self.users)]
        if any(dropped) and self.device.type == "cuda":
            gc.collect()  # an error may hold memory in a cycle with its traceback
            torch.cuda.empty_cache()
        return any(dropped)


def available_memory(device: torch.device) -> int:
    """Return how many bytes a capture on a GPU could use: those that are free, and those that torch caches."""
    if device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


_pools: dict[tuple[torch.device, int], Pool] = {}
_pools_lock = threading.Lock()


def pool_of(device: torch.device) -> Pool:
    """Return the pool of the device's current stream; "cuda" is the current device."""
    number = 0
    if device.type == "cuda":
        stream = torch.cuda.current_stream(device)
        device, number = stream.device, stream.cuda_stream
    with _pools_lock:
        return _pools.setdefault((device, number), Pool(device))


def release(device: torch.device) -> None:
    """Drop all graphs of the device's current stream, unless half of the device's memory is free beside them."""
    pool = pool_of(device)
    free, total = torch.cuda.mem_get_info(pool.device) if device.type == "cuda" else (0, 1)
    with pool.lock:
        if free < total // 2:
            pool.drop()


def enabled(device: torch.device) -> bool:
    """Return whether a function may be captured now: on a GPU, not during another capture, not switched off.

    ELMO_FAST_CUDA_GRAPHS=0 in the environment switches captures off.
    """
    return (
        device.type == "cuda"
        and os.environ.get("ELMO_FAST_CUDA_GRAPHS") != "0"
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def capture(function: Function, inputs: list[Tensor], pool: Pool, *, run_before: bool = True) -> Entry:
    """Capture `function` into the pool: a graph of each of its pieces.

    run_before: run it once first, so that kernels are compiled and handles exist; False for a function with side
    effects, which the caller has already run.
    """
    replays: list[Callable[[], object]] = []
    outputs: tuple[Tensor, ...] | None = None
    with torch.cuda.device(pool.device), _one_capture:
        pool.open()
        user = torch.cuda.current_stream()
        with torch.cuda.stream(pool.stream):
            pool.stream.wait_stream(user)
            if run_before:
                run_pieces(function, *inputs)
            pieces = pieces_of(function, *inputs)
            while outputs is None:
                graph, between = torch.cuda.CUDAGraph(), None
                with _captured_in(pool, graph):
                    try:
                        between = next(pieces)
                    except StopIteration as end:
                        outputs = end.value
                replays += [graph.replay] if between is None else [graph.replay, between]
        user.wait_stream(pool.stream)
    return Entry(inputs, outputs, lambda: [run() for run in replays], function)


@contextlib.contextmanager
def _captured_in(pool: Pool, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Return the context of launches that a graph captures; raise a UserWarning if there are none.

    If its end fails, torch.cuda.graph restores neither the default generator, which it registers, nor the stream. So it
    registers a copy of the generator's state: captured code must not sample from it.
    """
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.graphsafe_get_state()
    generator.graphsafe_set_state(state.clone_state())
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The CUDA Graph is empty")
            # Other threads may pin or allocate memory meanwhile: only this thread's calls end the capture.
            with torch.cuda.graph(graph, pool=pool.handle, stream=pool.stream, capture_error_mode="thread_local"):
                yield
    except BaseException:
        pool.abandon()
        raise
    finally:
        generator.graphsafe_set_state(state)


def _reason_of(error: BaseException, handled: BaseException | None) -> tuple[str, bool]:
    """Return the first line of what caused an error, and whether memory ran out; handled: an error from before.

    Errors that follow from the cause say less: torch raises one at the end of a capture in which something failed. An
    error raised from another, or from None, is worded for its reader.
    """
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause is not handled:
        causes.append(cause)
    first = next((each for each in causes if each.__suppress_context__), causes[-1])
    line = str(first).strip().partition("\n")[0]
    named = line if isinstance(first, (RuntimeError, ValueError)) else f"{type(first).__name__}: {line}"
    return named, any(isinstance(each, torch.OutOfMemoryError) for each in causes)


class Graphs:
    """Captured runs of one function, at most `limit` on each stream.

    A key gets a graph when it is seen again with the same version, because a capture costs more than a run. Once
    `limit` keys have one, it takes the place of the least recently used graph, if that has been idle for long. A key
    for whose capture memory ran out is tried again when more memory is available.

    capturing: see `capture`. After a failed capture this process captures nothing more. A copy or pickle has no graph.
    """

    def __init__(self, limit: int, capturing: Callable[[Function, list[Tensor], Pool], Entry] = capture) -> None:
        self.limit, self.capturing = limit, capturing
        self._held: dict[Pool, _PoolGraphs] = {}
        self._warned = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Graphs, (self.limit, self.capturing)

    def __len__(self) -> int:
        """Return the number of graphs."""
        return sum(len(graphs.entries) for graphs in list(self._held.values()))

    def run(
        self,
        key: Hashable,
        version: object,
        device: torch.device,
        function: Function,
        specs: Sequence[Spec],
        fill: Callable[[list[Tensor]], None],
        replayed: Callable[[Entry], Result],
    ) -> Result | None:
        """Return the result of `replayed` with the graph of `key`, or None if the caller must call its function.

        The caller must do so if the key is new or cannot be captured (a warning gives the reason).

        key: everything that a run depends on besides the tensors' values; version: the part of it that never recurs
        once it has changed, such as the versions of weights; specs: shape and dtype of each input, which share memory
        with those of other graphs; fill: writes all inputs; replayed: writes them too, replays, copies the outputs, and
        changes nothing else before that is done.
        """
        pool, handled = pool_of(device), sys.exc_info()[1]
        with pool.lock:
            graphs = self._held.setdefault(pool, _PoolGraphs())
            pool.users.add(graphs)
            if version != graphs.version:
                graphs.drop()
                graphs.seen.clear()
                graphs.version = version
            graphs.runs += 1
            entry = graphs.entries.get(key)
            if entry is None and graphs.may_capture(key, device):
                if not graphs.has_room(self.limit):
                    self._warn_of_limit()
                    return None
                entry = self._captured(graphs, pool, key, function, specs, fill)
            if entry is None:
                return None
            graphs.entries.move_to_end(key)
            graphs.used[key] = graphs.runs
            try:
                return replayed(entry)
            except Exception as error:
                why, short = _reason_of(error, handled)
                if not short:
                    raise
            del entry
            pool.drop()
            graphs.seen[key] = max(1, available_memory(device))
            _warn_of_failure(why)
            return None

    def _captured(
        self,
        graphs: _PoolGraphs,
        pool: Pool,
        key: Hashable,
        function: Function,
        specs: Sequence[Spec],
        fill: Callable[[list[Tensor]], None],
    ) -> Entry | None:
        """Capture a key; if memory runs out, all other graphs make room for it.

        Whatever a capture raises (Triton raises many kinds of errors) becomes a warning, because the caller then calls
        the function itself, which raises it again.
        """
        handled = sys.exc_info()[1]
        while True:
            try:
                # Never in inference mode, even if the caller is: tensors created in it cannot be written outside of it.
                with torch.inference_mode(False), torch.no_grad():
                    inputs = graphs.inputs(specs, pool.device)
                    fill(inputs)
                    entry = self.capturing(function, inputs, pool)
                graphs.entries[key], graphs.seen[key] = entry, 0
                return entry
            except Exception as error:  # noqa: BLE001 (see above)
                why, short = _reason_of(error, handled)
            begun = pool.handle is None  # the function may have failed before, which harms nothing
            if not (short and pool.drop()):
                break
        graphs.seen[key] = max(1, available_memory(pool.device)) if short else sys.maxsize
        if begun and not short:
            _given_up.set()
        _warn_of_failure(why)
        return None

    def _warn_of_limit(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"batches come in more than {self.limit} sizes, the limit for CUDA graphs; the others run launch by "
                "launch, which is slower. Use fewer sizes",
                PerformanceWarning,
                stacklevel=4,
            )


def _warn_of_failure(why: str) -> None:
    warnings.warn(f"running without a CUDA graph, launch by launch: {why}", PerformanceWarning, stacklevel=5)
