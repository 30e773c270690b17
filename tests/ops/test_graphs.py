"""CUDA graphs by bucket: on a GPU a replay equals eager launches; without one, a stand-in that runs the function again
shows that padding, copying and forgetting are right."""

import pytest
import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _graphs, _triton
from tests.backends import HAS_CUDA, device_of

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))


def again(function, inputs):
    """Captures nothing: a replay runs the function on the same inputs, into the same outputs."""
    outputs = function(*inputs)

    def replay():
        for into, value in zip(outputs, function(*inputs), strict=True):
            into.copy_(value)

    return _graphs.Entry(inputs, outputs, replay, function)


@pytest.fixture
def graphs(monkeypatch):
    from elmo_fast.ops.projected_lstm import graphed

    made = _graphs.Graphs(limit=3, capturing=_graphs.capture if HAS_CUDA else again)
    monkeypatch.setattr(graphed, "GRAPHS", made)
    return made


@pytest.mark.parametrize("backend", ["triton"])
def test_a_replay_equals_eager_launches(graphs, backend, monkeypatch):
    """Calls of several sizes in turn, some in one bucket: bit-equal to launching, whatever the entry held before."""
    from elmo_fast.ops.projected_lstm import graphed, host, triton

    torch.manual_seed(0)
    weights = [[torch.randn(size) * 0.3 for _ in range(2)] for size in ((40, 6), (40, 6), (40,), (6, 10))]
    for batch, time, given in ((3, 5, True), (4, 7, True), (1, 1, False), (3, 6, False), (3, 5, True)):
        inputs = [torch.randn(batch, time, 6) for _ in range(2)]
        lengths = torch.randint(0, time + 1, (batch,)) if given else None
        state = (torch.randn(2, batch, 6), torch.randn(2, batch, 10)) if given else (None, None)
        options = [False, True], 0.5, 0.4, True, "float16", False
        arguments = triton.ForwardArguments(inputs, *weights, lengths, *state, [], *options)
        wanted, found = host.forward(arguments)[0], graphed.forward(arguments)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)), (batch, time)
    assert len(graphs.entries) == 2  # 4 x 8 served three sizes, 1 x 1 one
    weights[0][0].mul_(0.5)  # the same graph, as the packed copy is written in place
    wanted, found = host.forward(arguments)[0], graphed.forward(arguments)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(graphs.entries) == 2


def test_the_oldest_entry_makes_room_and_a_failure_is_said_once():
    graphs = _graphs.Graphs(limit=2, capturing=again)
    device = torch.device("cpu")

    def get(key):
        return graphs.get(key, device, lambda x: (x + 1,), lambda: [torch.zeros(1)])

    first = get("a")
    get("b")
    assert get("a") is first
    get("c")
    assert [place[0] for place in graphs.entries] == ["a", "c"]

    def fails(function, inputs):
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs.capturing = fails
    with pytest.warns(PerformanceWarning, match="not permitted when stream is capturing"):
        assert get("d") is None
    assert get("d") is None  # and no second warning


def test_buckets():
    """Powers of two, then multiples; never less than asked for."""
    assert [_graphs.bucket(n, 8) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]


def test_the_environment_switches_captures_off(monkeypatch):
    assert not _graphs.enabled(device_of("reference"))
    if HAS_CUDA:
        assert _graphs.enabled(torch.device("cuda"))
        monkeypatch.setenv("ELMO_FAST_CUDA_GRAPHS", "0")
        assert not _graphs.enabled(torch.device("cuda"))
