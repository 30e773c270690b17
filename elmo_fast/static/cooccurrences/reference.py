"""The definition, in plain torch: for each distance all pairs of that distance, added in float64."""

import torch
from torch import Tensor

from elmo_fast.static.cooccurrences.op import BOUNDARY, LEFT_OUT, CooccurrenceArguments


def run(a: CooccurrenceArguments) -> tuple[Tensor, Tensor, Tensor]:
    """It keeps all pairs in memory, whatever the bound."""
    keys = [torch.empty(0, dtype=torch.int64, device="cpu")]
    weights = [torch.empty(0, dtype=torch.float64, device="cpu")]
    for part in a.numbers:
        found = a.words[part.long()].long()
        found = found[found != LEFT_OUT]
        sentences = (found == BOUNDARY).cumsum(0)
        inside = found >= 0
        found, sentences = found[inside], sentences[inside]
        for distance in range(1, min(a.window, len(found) - 1) + 1):
            near = sentences[distance:] == sentences[:-distance]
            here, before = found[distance:][near], found[:-distance][near]
            for row, column in ((here, before), (before, here)) if a.symmetric else ((here, before),):
                keys.append(row * a.num_words + column)
                weight = 1 / distance if a.distance_weighting else 1
                weights.append(torch.full_like(row, weight, dtype=torch.float64))
    entries, places = torch.cat(keys).unique(return_inverse=True)
    values = torch.zeros(len(entries), dtype=torch.float64, device="cpu").index_add_(0, places, torch.cat(weights))
    if a.progress is not None:
        total = sum(map(len, a.numbers))
        a.progress(total, total)
    return (entries // a.num_words).int(), (entries % a.num_words).int(), values.float()
