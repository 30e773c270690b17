"""The launches of hierarchical_softmax at the original ELMo's shapes: 793,471 words, paths of at most 30 nodes."""

import torch

from elmo_fast.ops._triton import python_function_of

WIDTH, WORDS, STEPS, LONGEST = 512, 793_471, 15_000_000, 30


def both_passes(count, precision, sparse=True, width=WIDTH, backward=True):
    """Forward and, with `backward`, that on what it saved."""
    weight, bias = torch.empty(WORDS - 1, width), torch.empty(WORDS - 1)
    first, nodes, targets = (torch.empty(n, dtype=torch.int64) for n in (WORDS + 1, STEPS, count))
    tree = first, nodes, torch.empty(STEPS, dtype=torch.uint8), LONGEST
    hidden = torch.empty(count, width)
    _, saved = python_function_of("hierarchical_softmax")(hidden, targets, weight, bias, *tree, precision, sparse, True)
    if backward:
        arguments = saved, hidden, targets, weight, first, nodes, precision, sparse
        python_function_of("hierarchical_softmax_backward")(torch.empty(count), *arguments)


def launches():
    for precision in ("bfloat16", "float32"):
        yield f"{precision}, 2560 rows", lambda precision=precision: both_passes(2560, precision)
