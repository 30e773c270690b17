"""The definition, in plain torch: entry after entry."""

import torch
from torch import Tensor


def run(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: tuple[Tensor, ...],
    squares: tuple[Tensor, ...],
    learning_rate: float,
    x_max: float,
    alpha: float,
) -> Tensor:
    words, contexts, word_biases, context_biases = weights
    loss = torch.zeros((), dtype=torch.float64, device=values.device)
    factors = (values / x_max).clamp_max(1) ** alpha
    logarithms = values.log()
    for entry, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        difference = words[i] @ contexts[j] + word_biases[i] + context_biases[j] - logarithms[entry]
        loss += factors[entry] * difference.double() ** 2
        slope = learning_rate * factors[entry] * difference
        steps = slope * contexts[j], slope * words[i], slope, slope
        for weight, sums, at, step in zip(weights, squares, (i, j, i, j), steps, strict=True):
            weight[at] -= step / sums[at].sqrt()
            sums[at] += step**2
    return loss
