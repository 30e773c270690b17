"""The softmax as a path through a binary tree of the vocabulary."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.hierarchical_softmax.op import hierarchical_softmax
from elmo_fast.ops.hierarchical_softmax.tree import HuffmanTree, huffman_tree

register(__name__, "native", "reference")

__all__ = ["HuffmanTree", "hierarchical_softmax", "huffman_tree"]
