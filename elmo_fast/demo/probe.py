"""What each layer knows: a scalar mix and a linear classifier, trained on properties of the text itself."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmo_fast.modules import ElmoEmbedder, ScalarMix

STEPS = 150


def ends_in_s(tokens: Sequence[str]) -> list[bool]:
    """A property of the spelling: does the token end in s?"""
    return [token.endswith("s") for token in tokens]


def after_determiner(tokens: Sequence[str]) -> list[bool]:
    """A property of the context: is one of the two tokens before a, an or the?"""
    return [bool({"a", "an", "the"} & {t.lower() for t in tokens[max(0, i - 2) : i]}) for i in range(len(tokens))]


TASKS: dict[str, Callable[[Sequence[str]], list[bool]]] = {
    "ends in s": ends_in_s,
    "a, an or the one or two before": after_determiner,
}


class Probe(NamedTuple):
    """A trained probe.

    weights: softmax of the mix's, one per layer, lowest first; accuracy: on held-out text; majority: that of always
    giving the more common answer.
    """

    task: str
    weights: list[float]
    accuracy: float
    majority: float


def layers_of(embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
    """The vectors of all tokens by each layer, [N, 2D] each, scaled to a mean square of 1."""
    stacked = torch.from_numpy(np.concatenate(list(embedder.embed_sentences(sentences)), axis=1))
    return list((stacked / stacked.square().mean(dim=(1, 2), keepdim=True).sqrt()).unbind(0))


def train_probe(task: str, train: list[Tensor], heldout: list[Tensor], labels: Tensor, heldout_labels: Tensor) -> Probe:
    """Fits softmax(w)-weighted layers and one linear unit by logistic regression; the layers are not trained."""
    torch.manual_seed(0)
    mix, unit = ScalarMix(len(train)), nn.Linear(train[0].shape[1], 1)
    optimizer = torch.optim.Adam([{"params": mix.parameters(), "lr": 0.05}, {"params": unit.parameters(), "lr": 0.02}])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(unit(mix(train)).squeeze(1), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (unit(mix(heldout)).squeeze(1) > 0) == heldout_labels.bool()
        weights = torch.softmax(torch.cat(list(mix.scalar_parameters)), 0)
    share = heldout_labels.mean().item()
    return Probe(task, weights.tolist(), right.float().mean().item(), max(share, 1 - share))


def probes(embedder: ElmoEmbedder, train: Sequence[Sequence[str]], heldout: Sequence[Sequence[str]]) -> list[Probe]:
    """One probe per task, trained on some sentences and judged on others."""
    embedder.reset_states()
    layers, heldout_layers = layers_of(embedder, train), layers_of(embedder, heldout)
    done = []
    for task, answer in TASKS.items():
        labels, heldout_labels = (
            torch.tensor([value for tokens in side for value in answer(tokens)], dtype=torch.float32)
            for side in (train, heldout)
        )
        done.append(train_probe(task, layers, heldout_layers, labels, heldout_labels))
    return done
