"""Many threads on one module: without carried state they get what one thread gets; with it they are refused."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast import BiLM
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import batch_to_ids
from tests.ops.graph_cases import DEVICE, needs_graphs

THREADS, CACHE = 8, 20
# More different words than the cache holds; every batch shares some with others.
BATCHES = [[[f"w{(7 * i + 3 * k) % 61}" for k in range(6)], [f"w{(5 * i) % 61}"]] for i in range(96)]


@pytest.fixture
def hurried():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work, threads=THREADS):
    """Return `work(number of the thread)` of threads that begin together; raise the first error."""
    begin = threading.Barrier(threads)

    def run(number):
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def layers_of(model, batch):
    with torch.no_grad():
        ids = batch_to_ids(batch).to(next(model.parameters()).device)
        return torch.stack(model(ids)["activations"])


@pytest.mark.parametrize("unique_words", [True, False])
def test_eight_threads_that_share_a_cache_get_what_one_gets(files, hurried, native_encoder, unique_words):
    """Bitwise equal, while words come and go in the cache."""
    paths = files()
    alone = BiLM(*paths, stateful=False, cache_size=0)
    expected = [layers_of(alone, batch) for batch in BATCHES]
    model = BiLM(*paths, stateful=False, cache_size=CACHE, unique_words=unique_words)
    places, cache = [range(number, len(BATCHES), THREADS) for number in range(THREADS)], model.encoder.new_cache()

    @torch.no_grad()
    def run(batch):
        words, mask = model.context_free(batch_to_ids(batch), cache)
        return torch.stack(model.activations(words, mask, model.lstm(words, mask)))

    actual = at_once(lambda number: [run(BATCHES[i]) for i in places[number]])
    wrong = [
        i
        for number in range(THREADS)
        for i, each in zip(places[number], actual[number], strict=True)
        if not torch.equal(each, expected[i])
    ]
    assert wrong == []
    assert len(cache._slots) == CACHE


def test_a_stateful_module_rejects_concurrent_threads_but_not_in_turn(files):
    """The second gets an error while the first is within; afterwards, and after an error, the module is free again."""
    model, ids = BiLM(*files()), batch_to_ids([["a", "b"]])
    within, leave = threading.Event(), threading.Event()
    run_layers = model._elmo_lstm.run_layers

    def wait(*arguments):
        within.set()
        assert leave.wait(10)
        return run_layers(*arguments)

    model._elmo_lstm.run_layers = wait
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(model, ids)
        assert within.wait(10)
        try:
            for use in (
                lambda: model(ids),
                lambda: model.lstm(torch.zeros(1, 1, 8), torch.ones(1, 1)),
                model.reset_states,
            ):
                with pytest.raises(
                    ElmoFastError, match=r"two threads used one stateful module at once.*stateful=False"
                ):
                    use()
        finally:
            leave.set()
        assert len(first.result(10)["activations"]) == model.num_layers
        with pytest.raises(ElmoFastError, match="inputs must be"):
            pool.submit(model, ids.float()).result(10)
    model.reset_states()
    alone = BiLM(model.options, model.state_dict())
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:  # another thread for each batch: strictly in turn
            actual = pool.submit(layers_of, model, [["a", "b"]]).result(10)
        assert torch.equal(actual, layers_of(alone, [["a", "b"]]))


def test_token_vectors_neither_use_nor_change_a_stateful_models_state(files):
    """Eight threads over one stateful BiLM: the vectors of a stateless one, and it goes on carrying its state."""
    model = BiLM(*files())
    layers_of(model, BATCHES[0])
    before = model._elmo_lstm._states
    vectors = TokenVectors(model, "all")
    expected = list(TokenVectors(BiLM(model.options, model.state_dict(), stateful=False), "all")(BATCHES[1]))
    for actual in at_once(lambda _: [list(vectors(BATCHES[1])) for _ in range(5)]):
        for each in actual:
            assert all((a == b).all() for a, b in zip(each, expected, strict=True))
    assert model.stateful
    assert model._elmo_lstm._states is before


@needs_graphs
def test_threads_that_share_a_captured_graph_take_turns(files, hurried, seen, monkeypatch):
    """The graph's inputs are one piece of memory: written, run and read by one thread at a time."""
    replay = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (time.sleep(0.002), replay(graph)))
    paths = files()
    model, alone = (BiLM(*paths, stateful=False, cuda_graphs=on).to(DEVICE).eval() for on in (True, False))
    batches = [[[f"w{i}", f"w{i + 1}"]] for i in range(8)]
    expected = [layers_of(alone, batch) for batch in batches]
    actual = at_once(lambda number: [layers_of(model, batch) for batch in batches])
    assert len(model._graphs) == 1
    assert all(torch.equal(a, b) for each in actual for a, b in zip(each, expected, strict=True))
