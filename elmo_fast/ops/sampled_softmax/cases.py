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
    """As many samples as rows; sizes that 16 divides, for which Triton compiles other code, and others."""
    return [
        Case(
            {
                **draw.output_layer(rows, size, words),
                "targets": draw.whole(words, rows),
                "samples": draw.distinct(rows, words),
            },
            call,
        )
        for rows, size, words in ((80, 80, 160), (70, 72, 333))
    ]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """The first of `cases` with each other tile that may be chosen on this card."""
    from elmo_fast.ops import _softmax

    case = cases(draw)[0]
    others = _softmax.other_choices("sampled_softmax", 80, 80, 80, getattr(torch, precision), device)
    return [case._replace(choices=each) for each in others]
