"""CUDA graphs by bucket: on a GPU a replay equals eager launches; without one, a stand-in that runs the function again
shows that padding, copying, making room and forgetting are right."""

import contextlib
import gc
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _capture, _graphs, _memory, _triton, _tuned
from tests.backends import HAS_CUDA, device_of
from tests.ops.graph_cases import again, assert_alike

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
CPU = torch.device("cpu")


@pytest.fixture
def graphs(monkeypatch):
    from elmo_fast.ops.projected_lstm import graphed

    made = _graphs.Graphs(limit=3, capturing=_capture.capture if HAS_CUDA else again)
    monkeypatch.setattr(graphed, "GRAPHS", made)
    return made


def arguments_of(weights, batch, time, given):
    """Of the op `projected_lstm`, two directions, random inputs."""
    from elmo_fast.ops.projected_lstm import triton

    inputs = [torch.randn(batch, time, 6) for _ in range(2)]
    lengths = torch.randint(0, time + 1, (batch,)) if given else None
    state = (torch.randn(2, batch, 6), torch.randn(2, batch, 10)) if given else (None, None)
    options = [False, True], 0.5, 0.4, True, "float16", False
    return triton.ForwardArguments(inputs, *weights, lengths, *state, [], *options)


def some_weights():
    return [[torch.randn(size) * 0.3 for _ in range(2)] for size in ((40, 6), (40, 6), (40,), (6, 10))]


def equal(found, wanted):
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def definition(a):
    """The same in plain torch and float64."""
    inputs, *lists = [
        [x.double().cpu() for x in of] for of in (a.inputs, a.weight_ih, a.weight_hh, a.bias, a.weight_hr)
    ]
    weights = [ops.LSTMWeights(*each) for each in zip(*lists, strict=True)]
    state = None if a.h0 is None else (a.h0.double().cpu(), a.c0.double().cpu())
    out, (h, c) = ops.projected_lstm(
        inputs, weights, None if a.lengths is None else a.lengths.cpu(), state, reverse=a.reverse,
        cell_clip=a.cell_clip, projection_clip=a.projection_clip, residual=a.residual, backend="reference",
    )  # fmt: skip
    return out, h, c


def check_alike(arguments, found, wanted):
    batch, time = arguments.inputs[0].shape[:2]
    padded = (_graphs.bucket(batch, 64), _graphs.bucket(time, 8)) != (batch, time)
    assert_alike(f"{batch} x {time}", found, wanted, lambda: definition(arguments), "float16", padded)


@pytest.mark.parametrize("backend", ["triton"])
def test_a_replay_equals_eager_launches(graphs, backend):
    """Calls of several sizes in turn, some in one bucket: as launching, whatever the entry held before."""
    from elmo_fast.ops.projected_lstm import graphed, host

    weights, kept = some_weights(), []
    for batch, length, given in ((3, 3, True), (4, 3, True), (1, 1, False), (3, 3, False), (1, 1, True)):
        arguments = arguments_of(weights, batch, length, given)
        wanted, found = host.forward(arguments)[0], graphed.forward(arguments)
        if found is not None:
            check_alike(arguments, found, wanted)
            kept.append((found, [each.clone() for each in found]))
    assert (len(graphs), len(kept)) == (2, 3)  # 4 x 4 serves two of its three calls, 1 x 1 one of two
    weights[0][0].mul_(0.5)  # the same graph, as the packed copy is written in place
    wanted, found = host.forward(arguments)[0], graphed.forward(arguments)
    check_alike(arguments, found, wanted)
    assert len(graphs) == 2
    assert all(equal(*pair) for pair in kept)  # no later replay wrote into them


def test_a_graph_goes_with_its_weights(graphs):
    """A deleted model's parameters are freed, and its graphs with the next call."""
    from elmo_fast.ops.projected_lstm import graphed

    if HAS_CUDA:
        pytest.skip("weights on the CPU")
    old, new = some_weights(), some_weights()
    for weights in (old, new):
        for _ in range(2):
            graphed.forward(arguments_of(weights, 1, 1, True))
    assert len(graphs) == 2
    del weights, old
    gc.collect()
    graphed.forward(arguments_of(new, 1, 1, True))
    assert len(graphs) == 1


class Calls:
    """Runs the function x + 1 by `Graphs`, without a GPU; counts captures."""

    def __init__(self, limit=2, capturing=again):
        self.made, self.graphs = [], _graphs.Graphs(limit, self.capture)
        self.capturing = capturing

    def capture(self, function, inputs, pool):
        self.made.append(pool)
        return self.capturing(function, inputs, pool)

    def __call__(self, key, version=0, value=1.0):
        """Whether a graph served the call, rightly."""

        def replayed(entry):
            entry.inputs[0].fill_(value)
            entry.replay()
            return entry.outputs[0].clone()

        found = self.graphs.run(key, version, CPU, lambda x: (x + 1,), lambda: [torch.zeros(1)], replayed)
        assert found is None or found.item() == value + 1
        return found is not None


def test_a_graph_captured_under_one_choice_serves_no_call_under_another():
    """As `elmo-fast tune` times one tile after another."""
    calls = Calls()
    with _tuned.forced({"tile": 1}):
        assert [calls("a") for _ in range(2)] == [False, True]
    assert not calls("a")


def test_a_graph_captured_before_choices_were_kept_is_dropped(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_tuned._card, "identity", lambda device: {"gpu": "Stand-in 1"})
    calls = Calls()
    assert [calls("a") for _ in range(2)] == [False, True]
    _tuned.keep(CPU, {"tile": 1})
    assert [(calls("a"), len(calls.graphs)) for _ in range(2)] == [(False, 0), (True, 1)]


def test_a_bucket_is_captured_when_it_is_seen_again():
    """Not at once: a capture costs more than a run. With other weights it starts anew, and the old graph is gone."""
    calls = Calls()
    assert [calls("a"), calls("b"), calls("a"), calls("a")] == [False, False, True, True]
    assert len(calls.made) == 1
    assert [calls("a", version=1), len(calls.graphs), calls("a", version=1)] == [False, 0, True]
    assert len(calls.made) == 2


def test_more_buckets_than_places_are_not_captured_for_ever():
    """Three buckets in turn, two places: two are captured once, and a warning says that the third runs without."""
    calls = Calls()
    with pytest.warns(PerformanceWarning, match=r"more than 2 sizes.*run launch by launch") as said:
        found = [[calls(key) for key in "abc"] for _ in range(50)]
    assert found[0] == [False] * 3
    assert found[1:] == [[True, True, False]] * 49
    assert (len(calls.made), len(said)) == (2, 1)


def test_a_graph_that_is_not_used_any_more_makes_room():
    calls = Calls()
    for key in "aabb":
        calls(key)
    with pytest.warns(PerformanceWarning, match="more than 2 sizes"):
        found = [calls("c") for _ in range(_graphs.PATIENCE)]
    assert found == [False] * (_graphs.PATIENCE - 1) + [True]
    assert [calls("b"), calls("c"), calls("a")] == [True, True, False]  # a's, the one used least recently


def test_a_failed_capture_is_said_once():
    def fails(function, inputs, pool):
        raise RuntimeError("operation not permitted when stream is capturing")

    calls = Calls(capturing=fails)
    calls("d")
    with pytest.warns(PerformanceWarning, match="not permitted when stream is capturing"):
        assert not calls("d")
    assert not calls("d")
    assert len(calls.made) == 1


def test_an_error_of_the_function_itself_is_raised():
    """What is no shortage and no failed capture is nothing to hide."""
    calls = Calls()
    calls("a")
    with pytest.raises(ElmoFastError, match="no such thing"):
        calls.graphs.run("a", 0, CPU, lambda x: (x,), lambda: [torch.zeros(1)], refusing)


def refusing(entry):
    raise ElmoFastError("no such thing")


def short(what="rows"):
    """Raises what an op does when its memory runs out."""
    with _memory.explained("projected_lstm", what, 100, 10, 10, CPU):
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
    assert (len(first.graphs), len(second.made)) == (0, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not second("b", version=5)
    assert len(second.made) == 2


def test_out_of_memory_while_results_are_copied_runs_eagerly(emptied):
    calls = Calls()
    calls("a")
    with pytest.warns(PerformanceWarning, match="out of memory on cpu"):
        assert calls.graphs.run("a", 0, CPU, lambda x: (x,), lambda: [torch.zeros(1)], lambda _: short()) is None
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
    monkeypatch.setattr(_capture, "_one_capture", threading.Lock())
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


def test_a_thread_that_captures_keeps_no_other_from_it(monkeypatch):
    """What is captured captures nothing itself; that is so in its own thread alone."""
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(_capture._thread, "capturing", True, raising=False)
    assert not _capture.enabled(cuda)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_capture.enabled, cuda).result()


class FakeCuda:
    """torch.cuda as far as a capture uses it: streams are names, and what is done to them is written down."""

    def __init__(self, monkeypatch):
        self.done, self.current, self.fails = [], "user", False
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

            def __exit__(self, *error):
                if fake.fails:
                    raise RuntimeError("the capture was invalidated")  # torch then restores no stream
                super().__exit__(*error)

        self.current = User()
        for name, value in {
            "Stream": Stream, "stream": On, "graph": Capture, "CUDAGraph": Graph,
            "device": lambda _: contextlib.nullcontext(), "current_stream": lambda *_: fake.current,
            "graph_pool_handle": lambda: "handle",
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)


def test_captures_of_a_pool_share_its_memory_and_its_stream(monkeypatch):
    """Run once before, on the same stream: torch reuses memory, and cuBLAS its workspace, on one stream alone."""
    cuda, pool, ran = FakeCuda(monkeypatch), _capture.Pool(torch.device("cuda", 0)), []
    for _ in range(2):
        entry = _capture.capture(lambda x: (ran.append(str(cuda.current)), (x,))[1], [torch.zeros(1)], pool)
        entry.replay()
    once = [
        "side 0 waits for user",
        {"pool": "handle", "stream": "side 0", "capture_error_mode": "thread_local"},
        "user waits for side 0",
        "replay",
    ]
    assert cuda.done == ["made side 0", *once, *once]
    assert ran == ["side 0"] * 4
    assert cuda.current == "user"


def test_what_changes_more_than_its_results_does_not_run_before_its_capture(monkeypatch):
    cuda, pool, ran = FakeCuda(monkeypatch), _capture.Pool(torch.device("cuda", 0)), []
    _capture.capture_changing(lambda x: (ran.append(str(cuda.current)), (x,))[1], [torch.zeros(1)], pool)
    assert ran == ["side 0"]


def test_a_capture_that_fails_leaves_the_stream_as_it_was(monkeypatch):
    cuda, pool = FakeCuda(monkeypatch), _capture.Pool(torch.device("cuda", 0))
    cuda.fails = True
    with pytest.raises(RuntimeError, match="invalidated"):
        _capture.capture(lambda x: (x,), [torch.zeros(1)], pool)
    assert cuda.current == "user"
    assert not _capture._thread.capturing
    assert not _capture._one_capture.locked()


def test_buckets():
    """Powers of two, then multiples; never less than asked for."""
    assert [_graphs.bucket(n, 8) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]


def test_the_environment_switches_captures_off(monkeypatch):
    assert not _capture.enabled(device_of("reference"))
    if HAS_CUDA:
        assert _capture.enabled(torch.device("cuda"))
        monkeypatch.setenv("ELMO_FAST_CUDA_GRAPHS", "0")
        assert not _capture.enabled(torch.device("cuda"))
