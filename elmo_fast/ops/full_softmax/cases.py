"""A small call of full_softmax: rows and words that fill no tile, the table in several chunks."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.full_softmax.op import full_softmax

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Chunks of some hundred words."""
    return {
        "losses": full_softmax(*(t[name] for name in ("hidden", "targets", "weight", "bias")), chunk_bytes=2**14, **how)
    }


def cases(draw: Draw) -> list[Case]:
    """70 rows over 333 words."""
    return [Case({**draw.output_layer(70, 72, 333), "targets": draw.whole(333, 70)}, call)]
