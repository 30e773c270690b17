"""A sentence that is too long to run at once, in stretches."""

import torch
from torch import Tensor

from elmo_fast.modules.bilm import BiLM


@torch.no_grad()
def long_activations(bilm: BiLM, ids: Tensor, stretch: int) -> list[Tensor]:
    """All layers of one sentence, equal to the BiLM's, in the memory of `stretch` tokens (and of the result).

    The directions are independent, so each carries its own state from stretch to stretch: the forward one from the
    start of the sentence, the backward one from its end.

    Args:
        bilm: one that runs in stretches; its carried state is neither used nor changed.
        ids: of one sentence, as from the BiLM's batch_to_ids: [T, C] int64, or [T] of a model of word ids.
        stretch: how many tokens run at a time, 1 or more.

    Returns: L+1 tensors [T, 2D], lowest first.
    """
    lstm, encoder = bilm._separate_lstm, bilm.encoder
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
