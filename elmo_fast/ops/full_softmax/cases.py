"""Small calls of full_softmax: rows and words that fill no tile, the table in several chunks."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors, with_other_tiles
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
    return [Case(draw.output_layer(*each), call) for each in sizes]


cases_of_tiles = with_other_tiles("full_softmax", cases)
