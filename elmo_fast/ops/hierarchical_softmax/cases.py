"""Small calls of hierarchical_softmax: words of long and short paths."""

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.hierarchical_softmax.op import hierarchical_softmax, huffman_tree

MULTIPLIES = True
WORDS = 150


def call(t: Tensors, how: How) -> Tensors:
    """A tree by Zipf's law, made on the CPU."""
    tree = huffman_tree(10**6 // torch.arange(1, WORDS + 1)).to(t["hidden"].device)
    return {"losses": hierarchical_softmax(t["hidden"], t["targets"], t["weight"], t["bias"], tree, **how)}


def cases(draw: Draw) -> list[Case]:
    """Sizes that 16 does not divide, and others, for which Triton compiles other code."""
    return [Case(draw.output_layer(rows, size, WORDS, WORDS - 1), call) for rows, size in ((45, 40), (48, 48))]
