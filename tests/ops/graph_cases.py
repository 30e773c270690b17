"""What tests of captured CUDA graphs share. They run on a GPU or on a stand-in (test_graphs_on_standin.py)."""

import threading

import pytest
import torch

from elmo_fast.ops import _graphs, _triton
from tests.support.backends import HAS_CUDA

DEVICE = torch.device("cuda:0" if HAS_CUDA else "cpu")
WHY_NOT = _triton.WHY_NOT or "no GPU; test_graphs_on_standin.py runs it on a stand-in"


def needs_graphs(test):
    """Skips the test where nothing can be captured; the extension may lack CUDA kernels."""
    heard = pytest.mark.filterwarnings("ignore:.*using the slower backend")
    return pytest.mark.skipif(not HAS_CUDA or _triton.WHY_NOT is not None, reason=WHY_NOT)(
        pytest.mark.graphs(heard(test))
    )


class Seen:
    """What torch was asked for. begun: (memory, stream) of each capture; replays: their number."""

    def __init__(self, monkeypatch):
        self.begun, self.replays = [], 0
        begin, replay = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.replay

        def began(graph, pool=None, **options):
            self.begun.append((pool, torch.cuda.current_stream()))
            begin(graph, pool, **options)

        def replayed(graph):
            self.replays += 1
            replay(graph)

        monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", began)
        monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replayed)


def watched(monkeypatch):
    """Captures and replays; none of another test's graphs, and failures that end with the test."""
    monkeypatch.setattr(_graphs, "_given_up", threading.Event())
    drop_all()
    yield Seen(monkeypatch)
    drop_all()


def drop_all(device=DEVICE):
    """Drop all graphs of the current stream."""
    _graphs.pool_of(torch.device(device)).drop()


def with_memory(monkeypatch, free, total=10_000):
    """Say how much memory of the GPU is free, and that torch has none in reserve."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free(), total))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device=None: 0)
