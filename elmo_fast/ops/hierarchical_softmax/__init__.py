"""hierarchical_softmax: cross entropy along a path through a binary tree, O(log V) instead of O(V); Huffman's tree."""

from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from elmo_fast._docstrings import document
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import register_op, requires_grad
from elmo_fast.ops._checks import (
    check_device,
    check_dtype,
    check_same,
    check_shapes,
    check_tensor,
    check_words,
    checked,
    described,
)
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._precision import rounded, under_autocast
from elmo_fast.ops._table_rows import table_gradients, table_rows


@document
class HuffmanTree(NamedTuple):
    """Binary tree of V words and V - 1 inner nodes, as the path from its root to each word."""

    first: Tensor
    """start of each path: word k has the steps first[k] to first[k + 1] - 1, [V + 1] int64"""
    nodes: Tensor
    """inner nodes passed, the root (V - 2) first, [steps] int64"""
    codes: Tensor
    """child of that node that comes next, 0 or 1, [steps] uint8"""
    longest: int
    """number of steps of the longest path"""

    def to(self, device: torch.device | str) -> "HuffmanTree":
        """Return the same tree on `device`."""
        return HuffmanTree(self.first.to(device), self.nodes.to(device), self.codes.to(device), self.longest)


def hierarchical_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    tree: HuffmanTree,
    *,
    sparse: bool = False,
    precision: str = "float32",
    backend: str = "auto",
) -> Tensor:
    """Compute the cross entropy of each row's word, as the choices along its path from the root of a binary tree.

        loss_n = - sum_j ln σ((1 - 2 c_j) (h_n · w_j + b_j))        j: nodes on the path of targets_n, c_j: child taken

    The probabilities exp(-loss) of all V words sum to exactly 1, for any table. With Huffman's tree a word of
    probability P costs about log2(1 / P) products of D.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the tree
        weight: a row for every inner node, w, [V - 1, D]
        bias: b, [V - 1]; zeros for word2vec's own objective
        tree: as from `huffman_tree`, on the device of hidden
        sparse: gradients of weight and bias as sparse COO tensors of the nodes passed: on the CPU coalesced, on a GPU
            with repeated nodes (see `coalesced`)
        precision: dtype to which hidden and the nodes' rows are rounded for the products; under torch.autocast
            "float32" means autocast's dtype
        backend: "auto", "native", "triton" or "reference"

    Returns:
        losses: [N], dtype of hidden, nats

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a word outside the tree (on a GPU, where values are
            not validated, its loss is NaN instead).

    Source: Morin and Bengio 2005, Hierarchical probabilistic neural network language model; Mikolov et al. 2013b,
    section 2.1 (Huffman's tree).
    """
    op = "hierarchical_softmax"
    check_tensor(op, "hidden", hidden)
    precision, (hidden,), no_autocast = under_autocast(precision, hidden.device, hidden)
    words = len(tree.first) - 1
    check_shapes(op, ("hidden", hidden, "N D"), ("targets", targets, "N"))
    if tuple(weight.shape) != (words - 1, hidden.shape[1]) or tuple(bias.shape) != (words - 1,):
        raise ElmoFastError(
            f"{op}: weight must have shape [V - 1={words - 1}, D={hidden.shape[1]}] and bias [V - 1], a row for every "
            f"inner node of a tree of V={words} words; got {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    check_same(op, "hidden, weight and bias", [hidden, weight, bias], floating=True)
    check_dtype(op, "targets", targets, torch.int64)
    check_same(op, "targets, tree.first and tree.nodes", [targets, tree.first, tree.nodes])
    check_shapes(op, ("tree.codes", tree.codes, "steps"), steps=len(tree.nodes))
    check_dtype(op, "tree.codes", tree.codes, torch.uint8)
    check_device(op, "hidden and targets", hidden, targets)
    check_device(op, "hidden and tree (see tree.to)", hidden, tree.codes)
    check_words(op, words, targets=targets)
    backend = select(op, backend, hidden.device, hidden.dtype, precision)
    with no_autocast:
        if backend == "reference":
            return checked(op, reference)(hidden, targets, weight, bias, tree, precision, sparse)
        options = precision, sparse, requires_grad(hidden, weight, bias)
        return registered_op(op, backend)(hidden, targets, weight, bias, *tree, *options)[0]


def _paths(counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


def reference(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, tree: HuffmanTree, precision: str, sparse: bool
) -> Tensor:
    """Compute hierarchical_softmax in plain torch: the definition."""
    first, nodes, codes, longest = tree
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


def huffman_tree(counts: Tensor) -> HuffmanTree:
    """Build Huffman's tree of words with these counts: no binary code has a smaller sum_k count_k · length_k.

    The two trees of the smallest counts are joined until one is left. Of equal counts, a word is taken before a joined
    tree (which keeps the longest path short), and a later word before an earlier one. Node j is the j-th to be
    joined; its child 0 is the one taken first.

    Args:
        counts: [V] int64, 0 or more, on the CPU, in any order; their sum below 2^63

    Raises:
        ElmoFastError: counts of wrong shape, dtype or device, no counts, a negative one, or too large a sum.

    Source: Huffman 1952; van Leeuwen 1976, On the construction of Huffman trees (two queues, linear after sorting).
    """
    op = "huffman_tree"
    check_shapes(op, ("counts", counts, "V"))
    check_dtype(op, "counts", counts, torch.int64)
    if counts.device.type != "cpu":
        raise ElmoFastError(f"{op}: counts must be on the CPU; got {described(counts)}")
    if len(counts) == 0:
        raise ElmoFastError(f"{op}: counts must hold at least one word; got none")
    if int(counts.min()) < 0:
        raise ElmoFastError(f"{op}: counts must not be negative; got {int(counts.min())}")
    if float(counts.double().sum()) >= 2**63:
        raise ElmoFastError(f"{op}: the sum of counts must be below 2^63; got {float(counts.double().sum()):.3g}")
    order = counts.argsort(stable=True, descending=True).flip(0)
    first, nodes, codes = _paths(counts, order)
    return HuffmanTree(first, nodes, codes, int(first.diff().max()))


def _of_steps(a: Any) -> bool:
    """Return whether gradients are rows of every step's node, as a GPU saves them; C++'s are of distinct nodes."""
    return len(a.saved) > 1


def _shapes(a: Any) -> dict[str, Any]:
    if _of_steps(a):
        passed: Any = a.saved[0].numel()
    else:
        passed = torch.library.get_ctx().new_dynamic_size() if a.sparse else a.weight.shape[0]
    ids = a.first.new_empty(passed if a.sparse and not _of_steps(a) else 0)
    return {"ids": ids, "weight": (passed, a.hidden.shape[1]), "bias": (passed,)}


def _tables(a: Any, gradients: dict[str, Any], needed: Set[str]) -> dict[str, Any]:
    """Compute the gradients of weight and bias from those of nodes: of every step, or distinct ones in order (C++)."""
    if _of_steps(a):
        return table_gradients(a, a.saved[2], gradients, needed)
    return table_gradients(a, gradients["ids"], gradients, needed, distinct=True) if a.sparse else gradients


register_op(
    "hierarchical_softmax",
    lambda a: a.hidden.new_empty(a.hidden.shape[0]),
    lambda a: [a.hidden.new_empty(a.hidden.shape[0], a.longest)],
    products=lambda a: a.hidden.numel() * len(a.nodes) // (len(a.weight) + 1),  # a path has its mean length
    shapes=_shapes,
    finish=_tables,
)
register("hierarchical_softmax", "native", "triton", kernels="elmo_fast.ops.hierarchical_softmax.kernels")
