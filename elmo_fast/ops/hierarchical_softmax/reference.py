"""hierarchical_softmax in plain torch: the definition, and Huffman's tree in plain Python."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import table_rows


def huffman_tree(counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return first [V + 1], nodes and codes [steps] of `huffman_tree`; `order` holds the words by rising count."""
    words, total = order.numpy(), len(order)
    weights = [*counts[order].tolist(), *[0] * (total - 1)]  # words by rising count, then joined trees, rising too
    parent, code = [0] * (2 * total - 1), [0] * (2 * total - 1)
    word, joined = 0, total
    for new in range(total, 2 * total - 1):
        for side in (0, 1):
            if word < total and (joined == new or weights[word] <= weights[joined]):
                child, word = word, word + 1
            else:
                child, joined = joined, joined + 1
            weights[new] += weights[child]
            parent[child], code[child] = new, side
    root = 2 * total - 2
    depth = [0] * (root + 1)
    for i in reversed(range(root)):
        depth[i] = depth[parent[i]] + 1
    first = np.zeros(total + 1, dtype=np.int64)
    first[words + 1] = depth[:total]
    first = first.cumsum()
    nodes, codes = np.empty(first[-1], dtype=np.int64), np.empty(first[-1], dtype=np.uint8)
    parents, branches = np.array(parent), np.array(code, dtype=np.uint8)
    at, step = np.arange(total), first[words + 1] - 1
    while len(at):  # one step of all paths, from the words up
        at, step = at[at < root], step[at < root]
        nodes[step], codes[step] = parents[at] - total, branches[at]
        at, step = parents[at], step - 1
    return torch.from_numpy(first), torch.from_numpy(nodes), torch.from_numpy(codes)


def hierarchical_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    first: Tensor,
    nodes: Tensor,
    codes: Tensor,
    longest: int,
    precision: str,
    sparse: bool,
) -> Tensor:
    begin, end = first.index_select(0, targets), first.index_select(0, targets + 1)
    # Paths are padded to the longest by their own last step, which adds no node that is not on them.
    steps = begin.unsqueeze(1) + torch.arange(longest, device=hidden.device)
    inside = steps < end.unsqueeze(1)
    steps = torch.minimum(steps, (end - 1).unsqueeze(1)).flatten()
    passed = nodes.index_select(0, steps)
    rows = rounded(table_rows(weight, passed, sparse), precision).view(*inside.shape, hidden.shape[1])
    offsets = table_rows(bias, passed, sparse).view(inside.shape)
    scores = torch.bmm(rows, rounded(hidden, precision).unsqueeze(2)).squeeze(2) + offsets
    signs = 1 - 2 * codes.index_select(0, steps).view(inside.shape).to(hidden.dtype)
    return -logsigmoid(signs * scores).masked_fill(~inside, 0.0).sum(1)
