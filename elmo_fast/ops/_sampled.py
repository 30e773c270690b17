"""What the losses over a shared sample of words have in common: the shapes of their C++ kernels' results."""

from typing import Any

from torch import Tensor


def fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A number for each row, another, and [N, S] where kept: all rows' at once fit into `chunk_bytes`."""
    count, samples = a.hidden.shape[0], a.rows.shape[0] - a.hidden.shape[0]
    kept = a.keep and (count <= 1 or count * samples * a.hidden.element_size() <= a.chunk_bytes)
    losses = a.hidden.new_empty(count)
    return losses, losses.new_empty(count), a.hidden.new_empty(count if kept else 0, samples)
