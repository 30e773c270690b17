"""projected_lstm's persistent scan at production sizes: 4096 cells, 512 columns, one launch per direction."""

import functools

import torch

from elmo_fast.ops.projected_lstm import host, host_persistent
from tests.kernels.on_chip import also

__all__ = ["ARCHITECTURES", "also", "launches"]
SIZE, CELLS, TIME = 512, 4096, 20
ARCHITECTURES = (90, 100)  # sm_80 has 163 KiB of shared memory per block, less than the weights of a block


def scan(batch, dtype, save, masked):
    layer = host.Layer(2, batch, TIME, SIZE, SIZE, CELLS, (False, True), 3.0, 3.0, True, dtype)
    steps = host.allocate(layer, torch.empty(batch, TIME, SIZE), save, True)
    steps = steps._replace(gates=torch.empty(2, TIME, batch, 4 * CELLS, dtype=host.pre_activation_dtype(layer)))
    sizes = ((4 * CELLS, SIZE), (4 * CELLS,), (SIZE, CELLS))
    weights = [torch.empty(2, *size, dtype=torch.float32 if len(size) == 1 else dtype) for size in sizes]
    masks = torch.empty(2, batch, SIZE) if masked else None
    lengths, failed = torch.empty(batch, dtype=host.LENGTHS), torch.empty(1, dtype=torch.int32)
    host_persistent.scan(layer, steps, weights, masks, lengths, save, failed)


def launches():
    """(label, call) per batch and precision."""
    for dtype in (torch.float16, torch.bfloat16):
        for batch in (1, 16, 32):
            for save, masked in ((False, False), (True, True)) if batch > 1 else ((False, False),):
                yield f"batch {batch}, {str(dtype)[6:]}", functools.partial(scan, batch, dtype, save, masked)
