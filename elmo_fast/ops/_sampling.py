"""Philox4x32-10, the counter-based generator of all samples, their copy to a GPU, and dropout as a function of seed.

Philox (in C++: csrc/common/philox.h): Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast._runtime.devices import to_device
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton

LOW = 0xFFFFFFFF
LANES = 1024  # of scalar_mix: elements that one of Philox's four results serves, side by side
MAX_TRIES = 2**31 - 1  # of log_uniform_sample
# Of log_uniform_sample: the term inside the logarithm of the expected counts.
CORRECTIONS = {"tensorflow": 0.0, "allennlp": 1e-13, "allennlp-0.9": 1e-7}


def _wide(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a * b; the product wraps in int64, but its bits are right."""
    product = b * a
    return (product >> 32) & LOW, product & LOW


def philox4x32(key: Sequence[Tensor | int], counter: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute four results from two words of key and four of counter, all below 2^32, tensors in int64."""
    (k, m), (a, b, c, d) = key, counter
    for _ in range(10):
        (high_c, low_c), (high_a, low_a) = _wide(0xCD9E8D57, c), _wide(0xD2511F53, a)
        a, b, c, d = high_c ^ b ^ k, low_c, high_a ^ d ^ m, low_a
        k, m = (k + 0x9E3779B9) & LOW, (m + 0xBB67AE85) & LOW
    return a, b, c, d


def uniforms(seed: int, offset: int, first: int, blocks: int) -> Tensor:
    """Generate 2·blocks numbers in [0, 1) of 53 bits.

    Block j is Philox of counter (j, offset) and key `seed`, low words first.
    """
    index = torch.arange(first, first + blocks, device="cpu")
    counter = (index & LOW, index >> 32, torch.full_like(index, offset & LOW), torch.full_like(index, offset >> 32))
    a, b, c, d = philox4x32((seed & LOW, seed >> 32), counter)
    bits = torch.stack([a | b << 32, c | d << 32], dim=1).flatten()
    return ((bits >> 11) & (2**53 - 1)).double() * 2.0**-53


# Set in the last counter word of dropout's draws, which no sampler's offset reaches.
DROPOUT = 0x80000000


def check_key(op: str, **numbers: int) -> None:
    """Raise ElmoFastError unless seed and offset are in the range of the generator."""
    for name, value in numbers.items():
        if not 0 <= value < 2**63:
            raise ElmoFastError(f"{op}: {name} must be from 0 to 2^63 - 1; got {value}")


def drawn_to(op: str, samples: Sequence[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    """Copy what `op` sampled on the CPU to a device without waiting, to a GPU through pinned memory.

    Raises ElmoFastError while a CUDA graph is being captured, because each replay would copy the same numbers.
    """
    if device.type != "cuda":
        return tuple(tensor.to(device) for tensor in samples)
    if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing():
        raise ElmoFastError(
            f"{op}: a CUDA graph cannot capture sampling on the CPU, as every replay would repeat the same sample; "
            "sample before the capture, or use a GPU backend if the op has one"
        )
    return tuple(to_device(tensor, device) for tensor in samples)


def threshold(probability: float) -> int:
    """Return the number below which 32 random bits drop an element."""
    return min(round(probability * 2**32), LOW)


def dropout_factors(
    probability: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Sample by what dropout multiplies each element: 0 with probability p, otherwise 1 / (1 - p).

    Nothing is read on the host, and a CUDA graph may hold the call: a replay samples by the offset that it finds. The
    numbers are a function of the arguments: word i % 4 of Philox block (plane · ceil(N / 4) + i // 4, first_row + row,
    offset), key `seed`, below p · 2^32 drops element i of a row.

    Args:
        probability: p, 0 < p < 1
        seed: 0 to 2^63 - 1
        offset: [] or [1] int64, on the device that samples
        first_row: number of the first row
        shape: (planes, rows, N)

    Returns:
        [planes, rows, N] float32
    """
    limit, scale = threshold(probability), 1 / (1 - probability)
    if has_kernel(offset.device):
        from elmo_fast.ops._kernels import launch_dropout

        return launch_dropout(limit, scale, seed, offset, first_row, shape)
    return plain_factors(limit, scale, seed, offset, first_row, shape)


def plain_factors(
    limit: int, scale: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Compute `dropout_factors` of the probability limit / 2^32 in plain torch."""
    planes, rows, width = shape
    plane, row, block = (torch.arange(count, device=offset.device) for count in (planes, rows, _triton.cdiv(width, 4)))
    first = (plane[:, None] * len(block) + block)[:, None, :].expand(planes, rows, -1)
    second, at = (first_row + row)[None, :, None].expand_as(first), offset.reshape(1, 1, 1).expand_as(first)
    counter = (first & LOW, second & LOW, at & LOW, (at >> 32) | DROPOUT)
    bits = torch.stack(philox4x32((seed & LOW, seed >> 32), counter), dim=-1).flatten(2)[:, :, :width]
    return (bits >= limit).to(torch.float32) * scale


def has_kernel(device: torch.device) -> bool:
    """Return whether Triton samples on this device."""
    return _triton.unsupported(device, torch.float32, "float32") is None
