"""Small calls of full_softmax: rows and words that fill no tile, the table in several chunks."""

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.full_softmax.op import full_softmax

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Chunks of some hundred words."""
    return {
        "losses": full_softmax(*(t[name] for name in ("hidden", "targets", "weight", "bias")), chunk_bytes=2**14, **how)
    }


def cases(draw: Draw) -> list[Case]:
    """Sizes that 16 divides, for which Triton compiles other code, and others."""
    sizes = (80, 80, 336), (70, 72, 333)
    return [Case({**draw.output_layer(*each), "targets": draw.whole(each[2], each[0])}, call) for each in sizes]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """The first of `cases` with each other tile that may be chosen on this card."""
    from elmo_fast.ops import _softmax

    case = cases(draw)[0]
    others = _softmax.other_choices("full_softmax", 80, 336, 80, getattr(torch, precision), device)
    return [case._replace(choices=each) for each in others]
