"""The definition, in plain torch: for each distance all pairs of that distance, added in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def run(
    numbers: Sequence[Tensor],
    words: Tensor,
    num_words: int,
    window: int,
    symmetric: bool,
    distance_weighting: bool,
    memory: int,
    folder: Any,
    progress: Callable[[int, int], None] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Keeps all pairs in memory, whatever the bound."""
    total = sum(map(len, numbers))
    keys, weights = (
        [torch.empty(0, dtype=torch.int64, device="cpu")],
        [torch.empty(0, dtype=torch.float64, device="cpu")],
    )
    for part in numbers:
        found = words[part.long()].long()
        found = found[found != -2]
        sentences = (found == -1).cumsum(0)
        inside = found >= 0
        found, sentences = found[inside], sentences[inside]
        for distance in range(1, min(window, len(found) - 1) + 1):
            near = sentences[distance:] == sentences[:-distance]
            here, before = found[distance:][near], found[:-distance][near]
            for row, column in ((here, before), (before, here)) if symmetric else ((here, before),):
                keys.append(row * num_words + column)
                weights.append(torch.full_like(row, 1 / distance if distance_weighting else 1, dtype=torch.float64))
    entries, places = torch.cat(keys).unique(return_inverse=True)
    values = torch.zeros(len(entries), dtype=torch.float64, device="cpu").index_add_(0, places, torch.cat(weights))
    if progress is not None:
        progress(total, total)
    return (entries // num_words).int(), (entries % num_words).int(), values.float()
