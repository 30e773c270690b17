"""hierarchical_softmax: cross entropy along a path through a binary tree, O(log V) instead of O(V)."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_floating, check_same, check_shape, check_words
from elmo_fast.ops._dispatch import select
from elmo_fast.ops._precision import under_autocast, without_autocast
from elmo_fast.ops.hierarchical_softmax.tree import HuffmanTree


class HierarchicalSoftmaxArguments(NamedTuple):
    """What a backend is given: the arguments of `hierarchical_softmax`, checked."""

    hidden: Tensor
    targets: Tensor
    weight: Tensor
    bias: Tensor
    first: Tensor
    nodes: Tensor
    codes: Tensor
    longest: int
    precision: str
    sparse: bool


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
    """Cross entropy of each row's word, as the choices along its path from the root of a binary tree.

        loss_n = - sum_j ln σ((1 - 2 c_j) (h_n · w_j + b_j))        j: nodes on the path of targets_n, c_j: child taken

    A softmax of its own: exp(-loss) over all V words of a row sum to 1 exactly, whatever the table. With Huffman's tree
    a word costs about as many products of D as it has bits of surprise.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the tree
        weight: a row for every inner node, w, [V - 1, D]
        bias: b, [V - 1]; zeros for word2vec's own objective
        tree: as from `huffman_tree`, on the device of hidden
        sparse: gradients of weight and bias as sparse COO tensors of the nodes passed: on the CPU coalesced, on a GPU
            with repeated nodes (see `coalesced`)
        precision: to what hidden and the nodes' rows are rounded for the products;
            under torch.autocast "float32" stands for autocast's dtype
        backend: "auto", "native" or "reference" (which serves GPUs: there is no kernel for them)

    Returns:
        losses: [N], dtype of hidden, nats

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a word outside the tree (on the CPU).

    Source: Morin and Bengio 2005, Hierarchical probabilistic neural network language model; Mikolov et al. 2013b,
    section 2.1 (Huffman's tree).
    """
    precision, cast = under_autocast(precision, hidden.device)
    hidden = cast(hidden)
    _check(hidden, targets, weight, bias, tree)
    kernel = select("hierarchical_softmax", backend, hidden.device, hidden.dtype, precision)
    with without_autocast(hidden.device):
        return kernel.run(HierarchicalSoftmaxArguments(hidden, targets, weight, bias, *tree, precision, sparse))


def _check(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, tree: HuffmanTree) -> None:
    op = "hierarchical_softmax"
    words = len(tree.first) - 1
    check_shape(op, "hidden", hidden, "N D")
    check_shape(op, "targets", targets, "N", N=hidden.shape[0])
    if tuple(weight.shape) != (words - 1, hidden.shape[1]) or tuple(bias.shape) != (words - 1,):
        raise ElmoFastError(
            f"{op}: weight must have shape [V - 1={words - 1}, D={hidden.shape[1]}] and bias [V - 1], a row for every "
            f"inner node of a tree of V={words} words; got {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    check_floating(op, "hidden", hidden)
    check_same(op, "hidden, weight and bias", [hidden, weight, bias])
    check_dtype(op, "targets", targets, torch.int64)
    check_same(op, "targets, tree.first and tree.nodes", [targets, tree.first, tree.nodes])
    check_shape(op, "tree.codes", tree.codes, "steps", steps=len(tree.nodes))
    check_dtype(op, "tree.codes", tree.codes, torch.uint8)
    if targets.device != hidden.device or tree.codes.device != hidden.device:
        raise ElmoFastError(
            f"{op}: hidden is on {hidden.device}, targets and tree on {targets.device} and {tree.codes.device}; "
            "move them (tree.to(device))"
        )
    check_words(op, words, targets=targets)
