"""Small calls of negative_sampling: noise words that repeat and are among the targets."""

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.negative_sampling.op import negative_sampling

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Five negatives for each row."""
    given = [t[name] for name in ("hidden", "targets", "weight", "bias", "samples")]
    return {"losses": negative_sampling(*given, negatives=5.0, **how)}


def cases(draw: Draw) -> list[Case]:
    """As many samples as rows; sizes that 16 divides, for which Triton compiles other code, and others."""
    return [
        Case(
            {
                **draw.output_layer(rows, size, words),
                "targets": draw.whole(words, rows),
                "samples": draw.whole(words, rows),
            },
            call,
        )
        for rows, size, words in ((80, 80, 160), (70, 72, 150))
    ]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """The first of `cases` with each other tile that may be chosen on this card."""
    from elmo_fast.ops import _softmax

    case = cases(draw)[0]
    others = _softmax.other_choices("negative_sampling", 80, 80, 80, getattr(torch, precision), device)
    return [case._replace(choices=each) for each in others]
