"""Large buffers: memory of dead tensors serves the next ones, is never shared with a live one, and is bounded."""

import gc

import pytest
import torch

from elmo_fast.ops import _native

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


@pytest.fixture(autouse=True)
def empty_pool():
    gc.collect()
    _native.C.clear_idle_buffers()
    assert _native.C.idle_buffer_bytes() == 0
    yield
    _native.C.clear_idle_buffers()


def product(value: float, rows: int = 1024, columns: int = 1024) -> torch.Tensor:
    """A result of 4 MiB (rows x columns floats), every element `value`."""
    return torch.ops.elmo_fast.matmul(torch.full((rows, 1), value), torch.ones(1, columns), "float32")


def test_memory_of_a_dead_tensor_is_used_again():
    first = product(1.0)
    place = first.data_ptr()
    del first
    assert _native.C.idle_buffer_bytes() >= 4 << 20
    second = product(2.0)
    assert second.data_ptr() == place
    assert (second == 2).all()


def test_memory_of_a_live_view_is_not_used_again():
    view = product(1.0)[5:7]
    second = product(2.0)
    assert (view == 1).all()
    assert (second == 2).all()


def test_at_most_a_gibibyte_is_kept():
    blocks = [product(1.0, 16384, 6400) for _ in range(3)]
    assert sum(block.nbytes for block in blocks) > 1 << 30
    del blocks
    assert 0 < _native.C.idle_buffer_bytes() <= 1 << 30
    _native.C.clear_idle_buffers()
    assert _native.C.idle_buffer_bytes() == 0
