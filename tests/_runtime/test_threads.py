"""Calls background the caller: their order, how far ahead they are, errors, threads, an early end."""

import threading
import time

import pytest
import torch

from elmo_fast._runtime.threads import BackgroundThreads, prefetch, torch_threads


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 3), (3, 3)])
def test_results_come_in_order_and_so_many_calls_are_ahead(threads, depth):
    read, done = [], 0

    def items():
        for item in range(20):
            read.append(item)
            yield item

    def call(item):
        time.sleep(0.002 * (item % 3))
        return -item

    with BackgroundThreads(threads) as background:
        for result in prefetch(background, call, items(), depth):
            assert result == -done
            done += 1
            assert len(read) == min(20, done + depth)
    assert done == 20


def test_the_next_call_runs_while_a_result_is_used():
    """Each waits for the other: in turn they would wait for ever."""
    meet = threading.Barrier(2, timeout=60)

    def call(item):
        if item:
            meet.wait()
        return item

    with BackgroundThreads() as background:
        results = prefetch(background, call, range(2))
        assert next(results) == 0
        meet.wait()
        assert list(results) == [1]


def test_without_threads_nothing_is_read_ahead():
    read = []
    for result in prefetch(None, str, (read.append(item) or item for item in range(3)), depth=2):
        assert read == list(range(int(result) + 1))
    assert result == "2"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_takes_the_place_of_its_result(error):
    def call(item):
        if item == 2:
            raise error("two")
        return item

    read = []

    def consume():
        with BackgroundThreads() as background:
            list(prefetch(background, call, (read.append(item) or item for item in range(9))))

    with pytest.raises(error, match="two"):
        consume()
    assert read == [0, 1, 2, 3]


def test_an_error_of_the_items_is_raised():
    def items():
        yield 1
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), BackgroundThreads() as background:
        list(prefetch(background, str, items()))


def test_an_early_end_drops_what_has_not_begun_and_waits_for_the_rest():
    begun, ended, go = [], [], threading.Event()

    def call(item):
        begun.append(item)
        if item == 1:
            go.wait(60)
        ended.append(item)

    with BackgroundThreads() as background:
        results = prefetch(background, call, range(9), depth=4)
        next(results)
        threading.Timer(0.05, go.set).start()
    assert begun == ended
    assert 3 not in begun
    assert not [t for t in threading.enumerate() if t.name.startswith("elmo_fast_")]


def test_its_threads_use_the_given_number_of_torchs_and_others_keep_theirs():
    def new_thread():
        actual = []
        thread = threading.Thread(target=lambda: actual.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return actual[0]

    with torch_threads(3):
        assert new_thread() == 3
        with BackgroundThreads(2, 1) as one, BackgroundThreads(1, 2) as two:
            assert [one.submit(torch.get_num_threads).result() for _ in range(4)] == [1] * 4
            assert two.submit(torch.get_num_threads).result() == 2
            assert (torch.get_num_threads(), new_thread()) == (3, 3)
        assert (torch.get_num_threads(), new_thread()) == (3, 3)
