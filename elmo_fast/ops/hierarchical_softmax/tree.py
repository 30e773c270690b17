"""huffman_tree: the binary tree over a vocabulary whose paths are short for frequent words."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_shape, given
from elmo_fast.ops._dispatch import select


class HuffmanTree(NamedTuple):
    """A binary tree of V words and V - 1 inner nodes, as the path from its root to each word."""

    first: Tensor
    """where each path begins: that of word k is steps first[k] to first[k + 1] - 1, [V + 1] int64"""
    nodes: Tensor
    """the inner nodes passed, the root (V - 2) first, [steps] int64"""
    codes: Tensor
    """which child of that node the path goes on to, 0 or 1, [steps] uint8"""
    longest: int
    """the most steps of a path"""

    def to(self, device: torch.device | str) -> "HuffmanTree":
        """The same tree on another device."""
        return HuffmanTree(self.first.to(device), self.nodes.to(device), self.codes.to(device), self.longest)


def huffman_tree(counts: Tensor, *, backend: str = "auto") -> HuffmanTree:
    """Huffman's tree of words that occur so often: no binary code has a smaller sum_k count_k · length_k.

    The two rarest trees are joined until one is left, a word before a joined tree of the same count (which keeps the
    longest path short), a later word before an earlier one. Node j is the j-th that was joined, its child 0 the first
    that was taken.

    Args:
        counts: [V] int64, from 0 up, on the CPU, in any order; their sum below 2^63
        backend: "auto", "native" or "reference"

    Raises:
        ElmoFastError: counts of another shape, dtype or device, none, a negative one, or too large a sum.

    Source: Huffman 1952; van Leeuwen 1976, On the construction of Huffman trees (two queues, linear after sorting).
    """
    op = "huffman_tree"
    check_shape(op, "counts", counts, "V")
    check_dtype(op, "counts", counts, torch.int64)
    if counts.device.type != "cpu":
        raise ElmoFastError(f"{op}: counts must be on the CPU; got {given(counts)}")
    if len(counts) == 0:
        raise ElmoFastError(f"{op}: counts must hold at least one word; got none")
    if int(counts.min()) < 0:
        raise ElmoFastError(f"{op}: counts must not be negative; got {int(counts.min())}")
    if float(counts.double().sum()) >= 2**63:
        raise ElmoFastError(f"{op}: the sum of counts must be below 2^63; got {float(counts.double().sum()):.3g}")
    order = counts.argsort(stable=True, descending=True).flip(0)
    first, nodes, codes = select("hierarchical_softmax", backend, counts.device, torch.float32).tree(counts, order)
    return HuffmanTree(first, nodes, codes, int(first.diff().max()))
