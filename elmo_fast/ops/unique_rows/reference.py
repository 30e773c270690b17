"""The definition, in plain torch."""

import torch
from torch import Tensor


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    return None


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    unique, inverse = torch.unique(ids, dim=0, return_inverse=True)
    return unique, inverse


def padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return pad(*run(ids))


def pad(unique: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros below the distinct rows, as many rows as there are ids; and how many are distinct."""
    number, rows = unique.shape[0], inverse.shape[0]
    below = unique.new_zeros(rows - number, unique.shape[1])
    return torch.cat([unique, below]), inverse, torch.full((), number, dtype=torch.int64, device=unique.device)


def gather(table: Tensor, inverse: Tensor) -> Tensor:
    return table.index_select(0, inverse)
