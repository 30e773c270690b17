"""Loops shared by threads (csrc/common/parallel.h): the same bits on any number; errors; forked processes."""

import os
import pathlib
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast._runtime.threads import torch_threads
from elmo_fast.ops import LSTMWeights, PackedWeights, _native, highway, projected_lstm
from tests.ops import highway_cases
from tests.ops.lstm_cases import cast, leaves, make

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
COUNTS = (2, 3, 4, 5)
TASKS = pathlib.Path("/proc/self/task")


def assert_the_same_on_any_number_of_threads(work):
    """work(): tensors. Three runs of each number, since each divides the work again."""
    with torch_threads(1):
        expected = work()
    for count in COUNTS:
        with torch_threads(count):
            for _ in range(3):
                for i, (actual, one) in enumerate(zip(work(), expected, strict=True)):
                    assert torch.equal(actual, one), f"tensor {i} on {count} threads"
            assert torch.get_num_threads() == count


@pytest.mark.parametrize("batch", [5, 70])
def test_projected_lstm_in_int8(batch):
    inputs, weights, lengths, state = make(batch, 6, 24, 40, 150)

    def run():
        with torch.no_grad():
            out, held = projected_lstm(inputs, weights, lengths, state, precision="int8", backend="native")
        return [out, *held]

    assert_the_same_on_any_number_of_threads(run)


def test_directions_in_turn_each_on_all_threads():
    """Few rows, and weights of which a last-level cache holds those of one direction alone: 10 MiB."""
    inputs, weights, lengths, state = cast(make(2, 3, 256, 256, 2048), torch.float32)

    def run():
        with torch.no_grad():
            out, held = projected_lstm(inputs, weights, lengths, state, reverse=[False, True], backend="native")
        return [out, *held]

    assert_the_same_on_any_number_of_threads(run)


def test_helpers_have_the_callers_inference_mode():
    """Both directions clear what they save, tensors of inference mode; one of them on a helper, as they take long."""
    inputs, weights, lengths, _ = cast(make(70, 20, 64, 64, 256, lengths=torch.arange(70) % 20), torch.float32)
    lists = [list(each) for each in zip(*weights, strict=True)]
    arguments = (3.0, 3.0, False, "float32", True)

    def run():
        with torch.inference_mode():
            ih, hh, bias, hr = lists
            return torch.ops.elmo_fast.projected_lstm(
                inputs, ih, hh, bias, hr, lengths, None, None, [], [False, True], *arguments
            )[:3]

    assert_the_same_on_any_number_of_threads(run)


def without_memory():
    """The arguments of a layer that no memory holds: both directions fail, on two threads one of them on a helper."""
    huge = 2**44
    weights = LSTMWeights(torch.zeros(1).expand(16, huge), torch.zeros(16, 4), torch.zeros(16), None)
    x = torch.zeros(1).expand(1, 1, huge)
    return [x, x], [weights, weights]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_an_error_of_any_thread_is_the_callers(count):
    case = make(3, 4, 8, 8, 20)
    expected = projected_lstm(*case, backend="native")[0]
    with torch_threads(count):
        for _ in range(5):
            with pytest.raises(Exception, match=r"memory|empty_strided"):  # torch's, of the digest's copy
                projected_lstm(*without_memory(), backend="native")
            assert torch.get_num_threads() == count
            assert torch.equal(projected_lstm(*case, backend="native")[0], expected)


def test_threads_of_python_at_once_get_what_one_gets():
    """Each with helpers of its own, and with its own number of threads."""
    cases = [cast(make(9, 5, 16, 24, 70), torch.float32) for _ in range(4)]

    def work(case):
        out, _ = projected_lstm(*case, backend="native")
        return [out, *torch.autograd.grad(out.square().sum(), leaves(case))]

    expected = [work(case) for case in cases]

    def run(number):
        torch.get_num_threads()  # only from then on a thread keeps the number that it sets
        torch.set_num_threads(1 + number % 3)
        actual = [work(cases[number]) for _ in range(10)]
        assert torch.get_num_threads() == 1 + number % 3
        return actual

    with torch_threads(1), ThreadPoolExecutor(4) as pool:
        for number, actual in enumerate(pool.map(run, range(4))):
            for results in actual:
                assert all(torch.equal(a, b) for a, b in zip(results, expected[number], strict=True))


def in_a_child(work):
    """The exit status of a forked process that runs work() and may take 30 seconds."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(30)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def test_a_forked_process_computes_with_threads_of_its_own():
    """A child process has one thread, and others of its own if it asks: it does not wait for those of its parent."""
    case = make(9, 5, 16, 24, 70)
    packed = PackedWeights()  # packing would take a thread more
    with torch_threads(3), torch.no_grad():
        expected = projected_lstm(*case, packed=packed, backend="native")[0]

        def work():
            assert torch.get_num_threads() == 1
            assert torch.equal(projected_lstm(*case, packed=packed, backend="native")[0], expected)
            torch.set_num_threads(3)
            assert torch.equal(projected_lstm(*case, packed=packed, backend="native")[0], expected)
            assert not TASKS.exists() or len(list(TASKS.iterdir())) == 2  # three threads: two directions, each on one

        assert in_a_child(work) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_threads_pack_can_pack():
    """A mutex that another thread held at the fork would stop the child for good."""
    weight, x, stop = torch.randn(1024, 1024), torch.randn(4, 1024), threading.Event()  # 4 MiB: a pooled buffer

    def pack_again():
        while not stop.is_set():
            highway(x, [], [], weight, backend="native")

    with ThreadPoolExecutor(3) as threads:
        busy = [threads.submit(pack_again) for _ in range(3)]
        try:
            statuses = [in_a_child(lambda: highway(x, [], [], weight, backend="native")) for _ in range(10)]
        finally:
            stop.set()
        for each in busy:
            each.result()
    assert statuses == [0] * 10


@pytest.mark.skipif(not TASKS.exists(), reason="/proc does not list threads here")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_more_threads_begin_than_torch_has(count):
    case = highway_cases.case(130, 96)

    def work():
        torch.set_num_threads(count)
        for _ in range(3):
            with torch.no_grad():
                highway(*case, backend="native")
        assert len(list(TASKS.iterdir())) == count

    assert in_a_child(work) == 0
