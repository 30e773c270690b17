"""Tensors that travel to a GPU in one copy."""

import torch

from elmo_fast._runtime.devices import ALIGNED, pack_together, parts_of


def test_parts_of_one_buffer_hold_each_tensor():
    """Several dtypes and shapes, including a number and nothing, none in the bytes of another; aligned."""
    tensors = [torch.arange(7), torch.tensor(5), torch.rand(3, 5) > 0.5, torch.empty(0, 2), torch.randn(2, 3)]
    packed = pack_together(tensors, pinned=False)
    parts = parts_of(packed, [(each.shape, each.dtype) for each in tensors])
    assert all(part.dtype == each.dtype and torch.equal(part, each) for part, each in zip(parts, tensors, strict=True))
    assert all((part.data_ptr() - packed.data_ptr()) % ALIGNED == 0 for part in parts if part.numel())
