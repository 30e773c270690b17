"""What the tests rest on: tensors where a backend runs, seeds that repeat, nothing rounded by default."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import backends


def test_tensors_of_a_test_are_made_on_its_device():
    """Factories follow the context, also without a GPU: the meta device stands for one."""
    with backends.on(torch.device("meta")):
        assert {torch.zeros(2).device.type, torch.tensor([1.0]).device.type, torch.randn(2).device.type} == {"meta"}
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.zeros(2).device.type == "cpu"


def test_generators_of_a_test_are_made_on_its_device():
    """As torch.Generator in everything else: the same numbers, an instance of it, another device if told."""
    plain = torch.Generator
    made = backends.generators_on(torch.device("cpu"))
    assert made().device == torch.device("cpu")
    assert isinstance(plain(), made)
    assert not isinstance(torch.zeros(1), made)
    ours, wanted = (torch.randn(5, generator=g.manual_seed(1)) for g in (made(), plain()))
    assert torch.equal(ours, wanted)
    with backends.on(torch.device("meta")):
        assert torch.Generator is not plain
        with pytest.raises(RuntimeError, match=r"(?i)meta"):  # asked of the context's device, which has none
            torch.Generator()
    assert torch.Generator is plain


@pytest.mark.skipif(not backends.HAS_CUDA, reason="there is no GPU here")
def test_a_gpus_generator_serves_the_gpus_factories():
    with backends.on(torch.device("cuda")):
        drawn = [torch.randn(5, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert drawn[0].is_cuda
    assert torch.equal(*drawn)


DRAWN: dict[int, float] = {}


@given(st.integers(0, 3))
def test_an_example_draws_the_same_tensors_whenever_it_is_tried(n):
    """Else hypothesis could neither shrink nor repeat what it found."""
    assert DRAWN.setdefault(0, float(torch.randn(()))) == pytest.approx(DRAWN[0])
    assert torch.initial_seed() == 0, n


def test_products_are_not_rounded_by_default():
    """Plain torch is the measure of the kernels: tf32 would widen every bound a thousandfold."""
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert torch.are_deterministic_algorithms_enabled()
