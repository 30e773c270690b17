"""Where no kernel is made for a device, plain torch serves it and a warning says so, once."""

import warnings

import pytest
import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _dispatch

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def unwarned():
    """Every test begins as a new process does."""
    _dispatch.warn_once.cache_clear()
    yield
    _dispatch.warn_once.cache_clear()


@pytest.mark.parametrize("op", ["negative_sampling", "hierarchical_softmax", "glove"])
def test_an_op_without_a_kernel_for_gpus_says_so_once(op):
    with pytest.warns(
        PerformanceWarning, match=f"{op}: using the slower backend 'reference', because it has no kernel"
    ):
        _dispatch.select(op, "auto", CUDA, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _dispatch.select(op, "auto", CUDA, torch.float32)
        _dispatch.select(op, "reference", CUDA, torch.float32)


def test_an_op_that_needs_none_and_the_cpu_are_silent():
    """Gathering rows is torch's own work on a GPU; on the CPU a kernel that refuses says why by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _dispatch.select("gather_runs", "auto", CUDA, torch.float32)
        _dispatch.select("negative_sampling", "reference", CPU, torch.float32)
