"""What the host asks about a GPU: its size, and which one it is."""

import functools

import torch

# Of an H100 or H200, less four for a round number of blocks. Tiles are chosen for it on every GPU.
MULTIPROCESSORS = 128

# Bytes of shared memory for a block: 99 KiB on consumer cards (sm_86, 89, 120), 163 on sm_80, 227 on sm_90 and 100.
SMALL = 100 * 1024


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a block may have; of an H100 where there is no GPU, as for `multiprocessors`."""
    if not torch.cuda.is_available():
        return 227 * 1024
    found: int = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", SMALL)
    return found


def is_small(device: torch.device) -> bool:
    """Whether a block has little shared memory, as on consumer cards; their tensor cores are fed from registers."""
    return shared_memory(device) <= SMALL


def input_precision(dtype: torch.dtype, device: torch.device) -> str:
    """The `input_precision` of a tl.dot with operands of `dtype`, float32 or 16 bit.

    float32 is three products of tf32 parts on tensor cores, which keep float32's tolerances (docs/gpu.md). On small
    GPUs, where tensor cores are no faster at tf32 than the other units at float32, it is an exact product.
    """
    return "tf32x3" if dtype == torch.float32 and not is_small(device) else "ieee"


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of the GPU; of an H100 if there is none, as launches are then only recorded."""
    if not torch.cuda.is_available():
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
