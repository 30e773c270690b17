"""Large buffers: memory of dead tensors serves the next ones, is never shared with a live one, and is bounded."""

import os

import pytest
import torch

from elmo_fast._runtime.memory import resident
from elmo_fast.ops import _native

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def product(value: float, rows: int = 1024, columns: int = 1024) -> torch.Tensor:
    """A result of 4 MiB (rows x columns floats), every element `value`."""
    return torch.ops.elmo_fast.matmul(torch.full((rows, 1), value), torch.ones(1, columns), "float32")


def in_a_child(holds):
    """Whether `holds()` is true in a forked process, which begins without memory of dead tensors."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if holds() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_memory_of_a_dead_tensor_is_used_again():
    def holds():
        first = product(1.0)
        place = first.data_ptr()
        del first
        second = product(2.0)
        return second.data_ptr() == place and (second[5] == 2).all()  # a child may not use OpenMP

    assert in_a_child(holds)


def test_memory_of_a_live_view_is_not_used_again():
    view = product(1.0)[5:7]
    second = product(2.0)
    assert (view == 1).all()
    assert (second == 2).all()


def test_at_most_a_gibibyte_is_kept():
    def holds():
        blocks = [product(1.0, 16384, 6400) for _ in range(3)]
        before, size = resident(), blocks[0].nbytes
        del blocks
        return 3 * size > 1 << 30 and size * 0.9 < before - resident() < size * 1.1

    assert in_a_child(holds)
