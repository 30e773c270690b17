"""CUDA graphs: a stand-in that runs the function again shows when they are captured, dropped and refused; one for
torch.cuda what a capture does to streams and the default generator."""

import contextlib
import itertools
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _graphs, _triton
from tests.backends import HAS_CUDA, device_of
from tests.ops.graph_cases import again

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
CPU = torch.device("cpu")
ONE = [((1,), torch.float32)]


class Calls:
    """Runs the function x + 1 by `Graphs`, without a GPU; counts captures."""

    def __init__(self, limit=2, capturing=again):
        self.pools, self.graphs = [], _graphs.Graphs(limit, self.capture)
        self.capturing = capturing

    def capture(self, function, inputs, pool):
        self.pools.append(pool)
        return self.capturing(function, inputs, pool)

    def __call__(self, key, version=0, value=1.0):
        """True if a graph served the call, with the right result."""

        def replayed(entry):
            entry.inputs[0].fill_(value)
            entry.replay()
            return entry.outputs[0].clone()

        actual = self.graphs.run(key, version, CPU, lambda x: (x + 1,), ONE, lambda memory: None, replayed)
        assert actual is None or actual.item() == value + 1
        return actual is not None


def test_a_size_is_captured_when_it_is_seen_again():
    """Not at once: a capture costs more than a run. With other weights it starts again, and the old graph is gone."""
    calls = Calls()
    assert [calls("a"), calls("b"), calls("a"), calls("a")] == [False, False, True, True]
    assert len(calls.pools) == 1
    assert [calls("a", version=1), len(calls.graphs), calls("a", version=1)] == [False, 0, True]
    assert len(calls.pools) == 2


def test_more_sizes_than_places_are_not_captured_for_ever():
    """Three sizes in turn, two places: two are captured once, and a warning says that the third runs without."""
    calls = Calls()
    with pytest.warns(PerformanceWarning, match=r"more than 2 sizes.*run launch by launch") as record:
        actual = [[calls(key) for key in "abc"] for _ in range(50)]
    assert actual[0] == [False] * 3
    assert actual[1:] == [[True, True, False]] * 49
    assert (len(calls.pools), len(record)) == (2, 1)


class OutOfResources(Exception):
    """An error like Triton's, which derives all its errors from Exception."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("operation not permitted when stream is capturing"), "launch by launch: operation not permitted"),
        (OutOfResources("shared memory"), "launch by launch: OutOfResources: shared memory"),
    ],
)
def test_a_failed_capture_is_a_warning_once(error, message):
    def fails(function, inputs, pool):
        raise error

    calls = Calls(capturing=fails)
    calls("d")
    with pytest.warns(PerformanceWarning, match=message):
        assert not calls("d")
    assert not calls("d")
    assert len(calls.pools) == 1
    assert not calls("d", version=1)  # with other weights it is tried again
    with pytest.warns(PerformanceWarning, match=message):
        assert not calls("d", version=1)
    assert len(calls.pools) == 2


def test_an_error_of_the_function_itself_is_raised():
    """An error that is neither a shortage of memory nor a failed capture is raised."""
    calls = Calls()
    calls("a")
    with pytest.raises(ElmoFastError, match="no such thing"):
        calls.graphs.run("a", 0, CPU, lambda x: (x,), ONE, lambda memory: None, refusing)


def refusing(entry):
    raise ElmoFastError("no such thing")


def short(what="rows"):
    """Raises what an op does when its memory runs out."""
    with _triton.explained("projected_lstm", what, 100, 10, 10, CPU):
        raise torch.OutOfMemoryError("CUDA out of memory")


def with_room_for(most):
    """A stand-in for a device on which only so many graphs fit, of all modules."""

    def capturing(function, inputs, pool):
        if sum(len(places.entries) for places in pool.users) >= most:
            short()
        return again(function, inputs, pool)

    return capturing


@pytest.fixture
def emptied():
    """No graphs of other tests in the pool that all of them share."""
    _graphs.release(CPU)


def test_out_of_memory_other_graphs_make_room(emptied):
    """Those of other modules too; the call is served, and what was dropped is captured again when it is used."""
    first, second = Calls(), Calls(capturing=with_room_for(1))
    assert [first("a"), first("a"), second("b"), second("b")] == [False, True, False, True]
    assert (len(first.graphs), len(second.graphs)) == (0, 1)
    assert [first("a"), first("a"), second("b")] == [False, True, True]


def test_out_of_memory_with_nothing_left_to_drop_runs_eagerly(emptied):
    """No error reaches the caller: a warning names the shortage, and the bucket is not tried again."""
    first, second = Calls(), Calls(capturing=with_room_for(0))
    first("a"), first("a"), second("b")
    with pytest.warns(PerformanceWarning, match="launch by launch: projected_lstm: out of memory on cpu: 10 rows"):
        assert not second("b")
    assert (len(first.graphs), len(second.pools)) == (0, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not second("b", version=5)
    assert len(second.pools) == 2


def test_a_refusal_ends_when_more_memory_is_available(emptied, monkeypatch):
    """A moment without memory does not cost a size its graph for ever; a warning for each refusal."""
    available, room = [1000], [0]
    monkeypatch.setattr(_graphs, "available_memory", lambda device: available[0])
    calls = Calls(capturing=lambda *arguments: with_room_for(room[0])(*arguments))
    calls("a")
    with pytest.warns(PerformanceWarning, match="out of memory"):
        assert not calls("a")
    room[0] = 1
    for available[0], served in ((1000, []), (1100, []), (1200, [True, True])):
        assert [calls("a") for _ in range(3)][1:] == (served or [False, False])


def test_a_graph_that_was_not_used_for_long_gives_way():
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
    tensors = [graphs.inputs([((size,), torch.float32), ((3, 2), torch.int64)], CPU) for size in sizes]
    for (first, second), size in zip(tensors, sizes, strict=True):
        assert (first.shape, second.shape) == ((size,), (3, 2))
        assert (first.data_ptr() - tensors[0][0].data_ptr()) % 64 == 0
    assert len({each[0].untyped_storage().data_ptr() for each in tensors}) == 2
    assert tensors[-1][0].untyped_storage().nbytes() == 4096 + 256


def test_out_of_memory_while_results_are_copied_runs_eagerly(emptied):
    calls = Calls()
    calls("a")
    with pytest.warns(PerformanceWarning, match="out of memory on cpu"):
        assert calls.graphs.run("a", 0, CPU, lambda x: (x,), ONE, lambda memory: None, lambda _: short()) is None
    assert len(calls.graphs) == 0


def test_release_drops_all_graphs():
    calls = Calls()
    calls("a"), calls("a")
    _graphs.release(CPU)
    assert len(calls.graphs) == 0


def test_threads_on_two_functions_get_their_own_numbers(monkeypatch):
    """Graphs of one pool overwrite each other: no thread replays between another's replay and copy, of any module."""

    def slowly(function, inputs, pool):
        entry = again(function, inputs, pool)
        return entry._replace(replay=lambda: (entry.replay(), time.sleep(0.0005)))

    both, begin = [Calls(capturing=slowly) for _ in range(2)], threading.Barrier(8)
    interval = sys.getswitchinterval()
    monkeypatch.setattr(_graphs, "_one_capture", threading.Lock())
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


class State:
    """State of a generator. capturing: torch then refuses to sample outside of a capture."""

    capturing = False

    def clone_state(self):
        return State()


class Generator:
    """torch's default generator of a GPU, as far as a capture uses it."""

    def __init__(self):
        self.state = State()

    def graphsafe_get_state(self):
        return self.state

    def graphsafe_set_state(self, state):
        self.state = state


class FakeCuda:
    """torch.cuda as far as a capture uses it: streams are names, and what is done to them is written down."""

    def __init__(self, monkeypatch):
        self.done, self.current, self.fails, self.generator = [], "user", False, Generator()
        fake = self

        class Stream(str):
            def __new__(cls):
                return str.__new__(cls, f"side {sum('made' in each for each in fake.done)}")

            def __init__(self):
                fake.done.append(f"made {self}")

            def wait_stream(self, other):
                fake.done.append(f"{self} waits for {other}")

        class On:
            def __init__(self, stream):
                self.stream = stream

            def __enter__(self):
                self.before, fake.current = fake.current, self.stream

            def __exit__(self, *error):
                fake.current = self.before

        class User(Stream):
            def __new__(cls):
                return str.__new__(cls, "user")

            def __init__(self):
                pass

        class Graph:
            def replay(self):
                fake.done.append("replay")

        class Capture(On):
            def __init__(self, graph, **options):
                super().__init__(options["stream"])
                fake.done.append(options)
                fake.generator.state.capturing = True

            def __exit__(self, *error):
                if fake.fails:
                    raise RuntimeError("the capture was invalidated")  # torch then restores neither it nor the stream
                fake.generator.state.capturing = False
                super().__exit__(*error)

        self.current, handles = User(), itertools.count()
        for name, value in {
            "Stream": Stream, "stream": On, "graph": Capture, "CUDAGraph": Graph,
            "device": lambda _: contextlib.nullcontext(), "current_stream": lambda *_: fake.current,
            "graph_pool_handle": lambda: f"handle {next(handles)}", "default_generators": [self.generator],
            "current_device": lambda: 0,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)


def test_captures_of_a_pool_share_its_memory_and_its_stream(monkeypatch):
    """Run once before, on the same stream: torch reuses memory, and cuBLAS its workspace, on one stream alone."""
    cuda, pool, ran, held = FakeCuda(monkeypatch), _graphs.Pool(torch.device("cuda", 0)), [], _graphs._PoolGraphs()
    pool.users.add(held)
    for number in range(3):
        entry = _graphs.capture(lambda x: (ran.append(str(cuda.current)), (x,))[1], [torch.zeros(1)], pool)
        entry.replay()
        held.entries[number] = entry
        if number == 1:
            held.drop()  # torch refuses captures into a pool that no graph uses any more
    handles = ["handle 0", "handle 0", "handle 1"]
    assert cuda.done == ["made side 0"] + [
        each
        for handle in handles
        for each in (
            "side 0 waits for user",
            {"pool": handle, "stream": "side 0", "capture_error_mode": "thread_local"},
            "user waits for side 0",
            "replay",
        )
    ]
    assert ran == ["side 0"] * 6
    assert cuda.current == "user"


def test_functions_with_side_effects_do_not_run_before_their_capture(monkeypatch):
    cuda, pool, ran = FakeCuda(monkeypatch), _graphs.Pool(torch.device("cuda", 0)), []
    _graphs.capture(lambda x: (ran.append(str(cuda.current)), (x,))[1], [torch.zeros(1)], pool, run_before=False)
    assert ran == ["side 0"]


def test_a_failed_capture_restores_the_stream_and_the_default_generator(monkeypatch):
    """torch would leave the generator within a capture: the user's own dropout would then fail."""
    cuda, pool = FakeCuda(monkeypatch), _graphs.Pool(torch.device("cuda", 0))
    cuda.fails = True
    with pytest.raises(RuntimeError, match="invalidated"):
        _graphs.capture(lambda x: (x,), [torch.zeros(1)], pool)
    assert cuda.current == "user"
    assert not cuda.generator.state.capturing
    assert not _graphs._one_capture.locked()


def test_the_environment_switches_captures_off(monkeypatch):
    assert not _graphs.enabled(device_of("reference"))
    if HAS_CUDA:
        assert _graphs.enabled(torch.device("cuda"))
        monkeypatch.setenv("ELMO_FAST_CUDA_GRAPHS", "0")
        assert not _graphs.enabled(torch.device("cuda"))
