"""Small calls of sampled_softmax: samples that are among the targets, sparse and dense gradients."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors, with_other_tiles
from elmo_fast.ops.sampled_softmax.op import sampled_softmax

MULTIPLIES = True


def call(t: Tensors, how: How) -> Tensors:
    """Sparse gradients where the table has few words."""
    table, sparse = (t["weight"], t["bias"]), t["weight"].shape[0] < 200
    return {"losses": sampled_softmax(t["hidden"], t["targets"], *table, t["samples"], 90, sparse=sparse, **how)}


def cases(draw: Draw) -> list[Case]:
    """As many samples as rows; sizes that 16 divides, for which Triton compiles other code, and others."""
    return [
        Case({**draw.output_layer(rows, size, words), "samples": draw.distinct(rows, words)}, call)
        for rows, size, words in ((80, 80, 160), (70, 72, 333))
    ]


cases_of_tiles = with_other_tiles("sampled_softmax", cases)
