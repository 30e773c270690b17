"""Foundations of the tests: tensors on a backend's device, seeds that repeat, nothing rounded by default."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support import backends


@pytest.mark.skipif(not backends.HAS_CUDA, reason="there is no GPU here")
def test_a_gpus_generator_serves_the_gpus_factories():
    """Generators as tests with a parameter `backend` make them: torch.Generator() alone stays on the CPU, and is
    rejected."""
    with torch.device(backends.device_of("triton")):
        tensors = [
            torch.randn(5, generator=torch.Generator(torch.get_default_device()).manual_seed(1)) for _ in range(2)
        ]
    assert tensors[0].is_cuda
    assert torch.equal(*tensors)


def test_a_backend_of_the_gpu_has_its_tensors_there_where_there_is_one():
    assert backends.device_of("triton").type == ("cuda" if backends.HAS_CUDA else "cpu")
    assert backends.device_of("native").type == backends.device_of("reference").type == "cpu"


VALUES: list[float] = []


@given(st.integers(0, 3))
def test_an_example_draws_the_same_tensors_whenever_it_is_tried(n):
    """Else hypothesis could neither shrink nor repeat a failure."""
    VALUES.append(float(torch.randn(())))
    assert VALUES[-1] == VALUES[0], n


def test_products_are_not_rounded_by_default():
    """Plain torch is the measure of the kernels: tf32 would widen every bound a thousandfold."""
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert torch.are_deterministic_algorithms_enabled()
