"""CUDA graphs: when they are captured, replayed, dropped and disabled, and what a failed capture leaves."""

import gc
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _graphs
from tests.ops.graph_cases import DEVICE, drop_all, needs_graphs, with_memory
from tests.support.backends import HAS_CUDA, device_of

ONE = [((1,), torch.float32)]
REFUSED = r"launch by launch: CUDA error: operation not permitted when stream is capturing"


def add_one(x):
    return (x + 1,)


def replayed(value):
    """What a caller does with a graph: writes the input, replays, copies the result."""

    def take(entry):
        entry.inputs[0].fill_(value)
        entry.replay()
        return entry.outputs[0].clone()

    return take


class Calls:
    """Runs x + 1 by `Graphs`."""

    def __init__(self, limit=2, function=add_one, **more):
        self.graphs, self.function, self.value = _graphs.Graphs(limit, **more), function, 0.0

    def __call__(self, key, version=0, value=None):
        """True if a graph served the call, with the right result of a value that no capture has seen."""
        self.value += 1
        value = self.value if value is None else value
        actual = self.graphs.run(
            key, version, DEVICE, self.function, ONE, lambda memory: memory[0].fill_(-7), replayed(value)
        )
        assert actual is None or actual.item() == value + 1
        return actual is not None


@needs_graphs
def test_a_size_is_captured_when_it_is_seen_again(seen):
    """Not at once: a capture costs more than a run. With other weights it starts again, and the old graph is gone."""
    calls = Calls()
    assert [calls("a"), calls("b"), calls("a"), calls("a")] == [False, False, True, True]
    assert (len(seen.begun), seen.replays) == (1, 2)
    assert [calls("a", version=1), len(calls.graphs), calls("a", version=1)] == [False, 0, True]
    assert len(seen.begun) == 2


@needs_graphs
def test_more_sizes_than_places_are_not_captured_for_ever(seen):
    """Three sizes in turn, two places: two are captured once, and a warning says that the third runs without."""
    calls = Calls()
    with pytest.warns(PerformanceWarning, match=r"more than 2 sizes.*run launch by launch") as record:
        actual = [[calls(key) for key in "abc"] for _ in range(50)]
    assert actual[0] == [False] * 3
    assert actual[1:] == [[True, True, False]] * 49
    assert (len(seen.begun), len(record)) == (2, 1)


class OutOfResources(Exception):
    """An error like Triton's, which derives all its errors from Exception."""


def raises_captured(error):
    """A function that raises in a capture."""

    def function(x):
        if torch.cuda.is_current_stream_capturing():
            raise error
        return add_one(x)

    return function


def reads_captured(x):
    """A function that waits for the device in a capture, which invalidates it."""
    return (x + x.item(),) if torch.cuda.is_current_stream_capturing() else add_one(x)


@needs_graphs
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads_captured, REFUSED),
        (raises_captured(OutOfResources("shared memory\nmore")), "launch by launch: OutOfResources: shared memory$"),
    ],
)
def test_a_failed_capture_is_one_warning_with_its_cause(seen, function, message):
    """Not torch's error at the end of a capture in which something failed, nor one that the caller handles."""
    calls, other = Calls(function=function), Calls()
    calls("d"), other("a"), other("a"), other("b")
    with pytest.warns(PerformanceWarning, match=message) as record:  # noqa: PT031
        try:
            raise torch.OutOfMemoryError("of the caller")
        except torch.OutOfMemoryError:
            assert not calls("d")
    assert len(record) == 1
    attempts = len(seen.begun)
    assert not any(calls("d", version) for version in (0, 1, 1, 1))
    assert [other("b"), other("b"), other("a")] == [False, False, True]  # nothing more is captured; graphs serve
    assert len(seen.begun) == attempts == 2


@needs_graphs
@pytest.mark.parametrize("recording", [True, False])
def test_a_failed_capture_leaves_torch_as_it_was(seen, monkeypatch, recording):
    """Stream, generator and allocator, which torch 2.11 leaves in the capture: its memory is then released once."""
    freed, before = [], torch.cuda.current_stream()

    def end(*arguments):
        freed.append(("end", *arguments))
        if not recording:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *arguments: freed.append(("release", *arguments)))
    pool = _graphs.Pool(DEVICE)
    with pytest.raises(Exception, match="previous error during capture"):
        _graphs.capture(reads_captured, [torch.zeros(1, device=DEVICE)], pool)
    each = DEVICE.index, seen.begun[0][0]
    assert freed == [("end", *each), *([("release", *each)] if recording else [])]
    assert torch.cuda.current_stream() == before
    assert torch.rand(3, device=DEVICE).isfinite().all()  # the default generator is not within a capture
    assert not _graphs._one_capture.locked()
    entry = _graphs.capture(add_one, [torch.zeros(1, device=DEVICE)], pool)
    assert replayed(4.0)(entry).item() == 5
    assert seen.begun[1][0] != seen.begun[0][0]


def two_pieces(first, second):
    """A function of two pieces, of which some launch nothing."""

    def function(x):
        y = x + 1 if first else x
        yield lambda: None
        return (y + 1 if second else y,)

    return function


@needs_graphs
@pytest.mark.parametrize("function", [lambda x: (x,), two_pieces(True, False), two_pieces(False, True)])
def test_a_graph_that_holds_nothing_is_an_error(seen, function):
    """Of any piece: a replay would return what an earlier one left."""
    inputs, pool = [torch.zeros(1, device=DEVICE)], _graphs.Pool(DEVICE)
    with warnings.catch_warnings(action="default"), pytest.raises(UserWarning, match="Graph is empty"):
        _graphs.capture(function, inputs, pool, run_before=False)


@needs_graphs
def test_what_the_host_does_between_pieces_is_done_at_each_replay(seen):
    entry = _graphs.capture(
        two_pieces(True, True), [torch.zeros(1, device=DEVICE)], _graphs.Pool(DEVICE), run_before=False
    )
    assert [replayed(value)(entry).item() for value in (3.0, 5.0)] == [5, 7]
    assert (len(seen.begun), seen.replays) == (2, 4)


@needs_graphs
def test_an_error_of_the_function_itself_is_raised(seen):
    """An error that is neither a shortage of memory nor a failed capture is raised."""
    calls = Calls()
    calls("a")
    with pytest.raises(ElmoFastError, match="no such thing"):
        calls.graphs.run("a", 0, DEVICE, add_one, ONE, lambda memory: None, refusing)


def refusing(entry):
    raise ElmoFastError("no such thing")


def short(*arguments):
    """Raises what an op does when its memory runs out."""
    raise torch.OutOfMemoryError("CUDA out of memory")


def with_room_for(most, sides):
    """A function for whose capture there is room beside fewer graphs."""

    def function(x):
        if torch.cuda.is_current_stream_capturing() and sum(len(side.graphs) for side in sides) >= most[0]:
            short()
        return add_one(x)

    return function


@needs_graphs
def test_out_of_memory_other_graphs_make_room(seen):
    """Those of other modules too; the call is served, and what was dropped is captured again when it is used."""
    sides = []
    sides += [Calls(), Calls(function=with_room_for([1], sides))]
    first, second = sides
    assert [first("a"), first("a"), second("b"), second("b")] == [False, True, False, True]
    assert (len(first.graphs), len(second.graphs)) == (0, 1)
    assert [first("a"), first("a"), second("b")] == [False, True, True]


@needs_graphs
def test_out_of_memory_with_nothing_left_to_drop_runs_eagerly(seen):
    """No error reaches the caller: a warning names the shortage, and the size is not tried again; others are."""
    sides = []
    sides += [Calls(), Calls(function=with_room_for([0], sides))]
    first, second = sides
    first("a"), first("a"), second("b")
    with pytest.warns(PerformanceWarning, match=r"launch by launch: CUDA out of memory"):
        assert not second("b")
    assert (len(first.graphs), len(seen.begun)) == (0, 3)
    assert not second("b")
    assert len(seen.begun) == 3
    assert [first("a"), first("a")] == [False, True]


@needs_graphs
def test_a_size_is_tried_again_when_more_memory_is_available(seen, monkeypatch):
    """A moment without memory does not cost a size its graph for ever; a warning for each failure."""
    available, room, sides = [1000], [0], []
    with_memory(monkeypatch, lambda: available[0])
    calls = Calls(function=with_room_for(room, sides))
    sides.append(calls)
    calls("a")
    with pytest.warns(PerformanceWarning, match="out of memory"):
        assert not calls("a")
    room[0] = 1
    for available[0], served in ((1000, False), (1100, False), (1200, True)):
        assert [calls("a") for _ in range(3)] == [served] * 3


@needs_graphs
def test_a_graph_that_was_not_used_for_long_gives_way(seen):
    """A text of other sizes gets graphs; sizes that take turns keep theirs."""
    calls = Calls()
    assert [calls(key) for key in "aabb"] == [False, True] * 2
    with pytest.warns(PerformanceWarning, match="more than 2 sizes"):
        other = [calls(key) for _ in range(50) for key in "cd"]
    assert not any(other[:6])
    assert all(other[20:])
    assert len(calls.graphs) == 2
    assert [calls("a") for _ in range(3)] == [False] * 3


def test_inputs_of_all_graphs_share_their_memory():
    """The pool holds the largest size and what came before it, so that many sizes take little more than one."""
    graphs, sizes = _graphs._PoolGraphs(), [300, 10, 1000, 900, 20]
    tensors = [graphs.inputs([((size,), torch.float32), ((3, 2), torch.int64)], DEVICE) for size in sizes]
    for (first, second), size in zip(tensors, sizes, strict=True):
        assert (first.shape, second.shape) == ((size,), (3, 2))
        assert (first.data_ptr() - tensors[0][0].data_ptr()) % 64 == 0
    assert len({each[0].untyped_storage().data_ptr() for each in tensors}) == 2
    assert tensors[-1][0].untyped_storage().nbytes() == 4096 + 256


@needs_graphs
def test_out_of_memory_while_results_are_copied_runs_eagerly(seen):
    calls = Calls()
    calls("a")
    with pytest.warns(PerformanceWarning, match="out of memory"):
        assert calls.graphs.run("a", 0, DEVICE, add_one, ONE, lambda memory: None, short) is None
    assert len(calls.graphs) == 0


@needs_graphs
def test_graphs_are_released_where_little_memory_is_free_beside_them(seen, monkeypatch):
    calls, free = Calls(), [6000]
    calls("a"), calls("a")
    with_memory(monkeypatch, lambda: free[0])
    _graphs.release(DEVICE)
    assert calls("a")
    free[0] = 4000
    _graphs.release(torch.device("cuda"))
    assert (len(calls.graphs), len(seen.begun)) == (0, 1)


@needs_graphs
def test_a_device_without_an_index_is_the_current_one(seen):
    assert _graphs.pool_of(torch.device("cuda")) is _graphs.pool_of(DEVICE)
    assert _graphs.pool_of(torch.device("cuda")).device == DEVICE


@needs_graphs
def test_nothing_grows_with_captures(seen, monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # slow
    calls = Calls()
    for _ in range(20):
        assert [calls("a"), calls("a")] == [False, True]
        drop_all()
    (held,) = calls.graphs._held.values()
    assert [len(each) for each in (held.entries, held.used, held.seen)] == [0, 0, 0]
    assert len(seen.begun) == 20


@needs_graphs
def test_threads_on_two_functions_get_their_own_numbers(seen, monkeypatch):
    """Graphs of one pool overwrite each other: no thread replays between another's replay and copy, of any module."""
    replay = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replay(graph), time.sleep(0.0005)))
    both, begin = [Calls() for _ in range(2)], threading.Barrier(8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(number):
        begin.wait()
        return [both[number % 2]("ab"[number // 2 % 2], value=100.0 * number + i) for i in range(50)]

    try:
        with ThreadPoolExecutor(8) as pool:
            served = list(pool.map(work, range(8)))  # each call compares its own number
    finally:
        sys.setswitchinterval(interval)
    assert sum(map(sum, served)) == 8 * 50 - 4
    assert [len(each.graphs) for each in both] == [2, 2]


@needs_graphs
def test_captures_of_a_pool_share_its_memory_and_its_stream(seen):
    """Run once before, on the same stream: torch reuses memory, and cuBLAS its workspace, on one stream alone."""
    pool, ran, held, user = _graphs.Pool(DEVICE), [], _graphs._PoolGraphs(), torch.cuda.current_stream()
    pool.users.add(held)
    for number in range(3):
        entry = _graphs.capture(
            lambda x: (ran.append(torch.cuda.current_stream()), add_one(x))[1], [torch.zeros(1, device=DEVICE)], pool
        )
        assert replayed(number)(entry).item() == number + 1
        held.entries[number] = entry
        del entry
        if number == 1:
            held.drop()  # torch refuses captures into a pool that no graph uses any more
    (first, stream), (second, _), (third, _) = seen.begun
    assert first == second != third
    assert {*ran, *(each for _, each in seen.begun)} == {stream}
    assert (len(ran), torch.cuda.current_stream()) == (6, user)
    assert stream != user


@needs_graphs
def test_functions_with_side_effects_do_not_run_before_their_capture(seen):
    ran = []
    inputs = [torch.zeros(1, device=DEVICE)]
    _graphs.capture(lambda x: (ran.append(1), add_one(x))[1], inputs, _graphs.Pool(DEVICE), run_before=False)
    assert ran == [1]


def test_the_environment_switches_captures_off(monkeypatch):
    assert not _graphs.enabled(torch.device("cpu"))
    if HAS_CUDA:
        assert _graphs.enabled(device_of("triton"))
        monkeypatch.setenv("ELMO_FAST_CUDA_GRAPHS", "0")
        assert not _graphs.enabled(device_of("triton"))
