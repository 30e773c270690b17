"""The definition, in plain torch: entry after entry."""

import torch
from torch import Tensor

from elmo_fast.static.glove.op import GloveArguments


def run(a: GloveArguments) -> Tensor:
    words, contexts, word_biases, context_biases = a.weights
    loss = torch.zeros((), dtype=torch.float64, device=a.values.device)
    factors = (a.values / a.x_max).clamp_max(1) ** a.alpha
    logarithms = a.values.log()
    for entry, (i, j) in enumerate(zip(a.rows.tolist(), a.columns.tolist(), strict=True)):
        difference = words[i] @ contexts[j] + word_biases[i] + context_biases[j] - logarithms[entry]
        loss += factors[entry] * difference.double() ** 2
        slope = a.learning_rate * factors[entry] * difference
        steps = slope * contexts[j], slope * words[i], slope, slope
        for weight, sums, at, step in zip(a.weights, a.squares, (i, j, i, j), steps, strict=True):
            weight[at] -= step / sums[at].sqrt()
            sums[at] += step**2
    return loss
