"""Small calls of sampled_softmax: samples that are among the targets, sparse and dense gradients."""

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.sampled_softmax.op import sampled_softmax

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Sparse gradients where the table has few words."""
    table, sparse = (t["weight"], t["bias"]), t["weight"].shape[0] < 200
    return {"losses": sampled_softmax(t["hidden"], t["targets"], *table, t["samples"], 90, sparse=sparse, **how)}


def cases(draw: Draw) -> list[Case]:
    """70 rows; 70 of 150 words, then of 333."""
    return [
        Case(
            {**draw.output_layer(70, 72, words), "targets": draw.whole(words, 70), "samples": draw.distinct(70, words)},
            call,
        )
        for words in (150, 333)
    ]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """The first of `cases` with each other tile that may be chosen on this card."""
    from elmo_fast.ops import _softmax

    case = cases(draw)[0]
    others = _softmax.other_choices("sampled_softmax", 70, 70, 72, getattr(torch, precision), device)
    return [case._replace(choices=each) for each in others]
