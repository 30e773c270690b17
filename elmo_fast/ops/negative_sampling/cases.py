"""Small calls of negative_sampling: noise words that repeat and are among the targets."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors, with_other_tiles
from elmo_fast.ops.negative_sampling.op import negative_sampling

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Five negatives for each row."""
    given = [t[name] for name in ("hidden", "targets", "weight", "bias", "samples")]
    return {"losses": negative_sampling(*given, negatives=5.0, **how)}


def cases(draw: Draw) -> list[Case]:
    """As many samples as rows; sizes that 16 divides, for which Triton compiles other code, and others."""
    return [
        Case({**draw.output_layer(rows, size, words), "samples": draw.whole(words, rows)}, call)
        for rows, size, words in ((80, 80, 160), (70, 72, 150))
    ]


cases_of_tiles = with_other_tiles("negative_sampling", cases)
