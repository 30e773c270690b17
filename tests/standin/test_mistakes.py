"""The stand-in refuses or shows what a GPU would: 24 deliberate mistakes."""

import os

import pytest
import torch

if not os.environ.get("STANDIN"):
    pytest.skip("needs `python -m tests.standin python -m pytest ...`", allow_module_level=True)

CUDA = torch.device("cuda")


def captured(function):
    """Capture a function; raise the error of the call itself, before that of the end of the capture."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            function()
        except RuntimeError:
            with pytest.raises(RuntimeError, match="previous error during capture"):
                graph.capture_end()
            raise
        graph.capture_end()


def write_where(x):
    x[x > 5] = torch.ones(0, device=CUDA)


def wait_for_an_event(x):
    event = torch.cuda.Event()
    event.record()
    event.synchronize()


WAITS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.any()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "masked write": write_where,
    "unique": lambda x: x.unique(),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "pageable memory": lambda x: torch.ones(3).to(CUDA),
    "event": wait_for_an_event,
}


@pytest.mark.parametrize("mistake", WAITS)
def test_a_capture_that_waits_for_the_host_is_refused(mistake):
    x = torch.zeros(6, device=CUDA)
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        captured(lambda: WAITS[mistake](x))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda x: torch.cuda.set_device(CUDA), "specified index"),
        (lambda x: torch.cuda.set_device(7), "invalid device ordinal"),
        (lambda x: x + x.to("cuda:1"), "same device"),
        (lambda x: torch.mm(torch.ones(2, 2), torch.ones(2, 2, device=CUDA)), "same device"),
        (lambda x: torch.rand(2, device=CUDA, generator=torch.Generator()), "generator"),
        (lambda x: x.numpy(), "convert cuda"),
        (lambda x: torch.empty(1 << 40, device=CUDA), "out of memory"),
    ],
    ids=["device without index", "device 7", "two GPUs", "CPU and GPU", "CPU's generator", "numpy", "memory"],
)
def test_is_refused_outside_of_a_capture_too(mistake, message):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        mistake(torch.ones(2, device=CUDA))


def test_a_capture_runs_nothing():
    x, graph = torch.zeros(3, device=CUDA), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x += 1
    assert (x == 0).all()
    graph.replay()
    assert (x == 1).all()


def test_an_empty_graph_is_warned_of():
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass


def test_a_replay_that_reads_freed_memory_gives_nan():
    x, graph = torch.ones(4, device=CUDA), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    assert (y == 2).all()
    del x
    graph.replay()
    assert y.isnan().all()


def test_a_graph_overwrites_a_result_of_its_pool_that_nobody_holds():
    x, pool, stream = torch.ones(4, device=CUDA), torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    one, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(one, pool=pool, stream=stream):
        result = x + 1
    values = torch.ops.standin.twin(result)  # which does not keep the memory alive
    del result
    with torch.cuda.graph(other, pool=pool, stream=stream):
        kept = x + 2
    one.replay()
    assert (values == 2).all()
    other.replay()
    assert values.isnan().all()
    assert (kept == 3).all()


def test_a_result_is_not_there_before_the_host_has_waited():
    pinned = torch.empty(4, pin_memory=True)
    pinned.copy_(torch.ones(4, device=CUDA), non_blocking=True)
    assert pinned.isnan().all()
    torch.cuda.synchronize()
    assert (pinned == 1).all()


def test_memory_that_nobody_has_written_is_nan():
    torch.utils.deterministic.fill_uninitialized_memory = False  # which would fill it too
    assert torch.empty(3, device=CUDA).isnan().all()
