"""Sentences too long to be run at once, run stretch by stretch with the same result."""

import torch
from torch import Tensor

from elmo_fast.modules.bilm import BiLM


@torch.no_grad()
def long_activations(bilm: BiLM, ids: Tensor, stretch: int) -> list[Tensor]:
    """All layers of one sentence: what the BiLM gives, in the memory of `stretch` tokens (and of the result).

    The directions know nothing of each other, so that each carries its state from stretch to stretch: the forward one
    from the sentence's begin, the backward one from its end.

    Args:
        bilm: its carried state is neither used nor changed.
        ids: as from the BiLM's batch_to_ids, of one sentence: [T, C] int64, or [T] of a model of word ids.
        stretch: tokens run at a time, 1 or more.

    Returns: L+1 tensors [T, 2D], lowest first.
    """
    lstm, encoder = bilm._elmo_lstm, bilm.encoder
    markers = encoder.markers.to(ids)
    whole = torch.cat([markers[:1], ids, markers[1:]])
    words = torch.cat([encoder.encode(part) for part in whole.split(stretch)])
    count, width = words.shape
    layers = words.new_empty(lstm.num_layers, 2, count, width)
    state = None
    for start in range(0, count, stretch):
        stop = min(start + stretch, count)
        ahead, back = slice(start, stop), slice(count - stop, count - start)
        outputs, state = lstm.run_layers(words[None, ahead], words[None, back], None, state)
        for layer, output in zip(layers, outputs, strict=True):
            layer[0, ahead], layer[1, back] = output[0, 0], output[1, 0]
    joined = [torch.cat([words, words], dim=-1), *(torch.cat([layer[0], layer[1]], dim=-1) for layer in layers)]
    return [layer[1:-1] for layer in joined]
