"""What a launch asks of the GPU beside the shapes of a call: how many multiprocessors it has."""

import functools

import torch

# Of an H100 or H200, less four for a round number of blocks. Tiles are chosen for it on every GPU.
MULTIPROCESSORS = 128


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many the GPU has; where there is none, launches are only recorded, and those for an H100 are wanted."""
    if not torch.cuda.is_available():
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
