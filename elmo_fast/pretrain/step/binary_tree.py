"""Sums in the order of a binary tree, which does not depend on who adds which part of it."""

from collections.abc import Iterable

import torch
from torch import Tensor


class BinaryTree:
    """The sum of a power of two of leaves in one fixed order: neighbours in pairs, then pairs of pairs.

    A leaf is a list of tensors, which the tree owns: sums are made in place of the left one as soon as both sides are
    whole, so log2 of the number of leaves are held at a time, and one more.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, list[Tensor]]] = []

    def add(self, leaf: Iterable[Tensor]) -> None:
        """Adds the next leaf."""
        leaves, right = 1, list(leaf)
        while self._sums and self._sums[-1][0] == leaves:
            _, left = self._sums.pop()
            torch._foreach_add_(left, right)
            leaves, right = 2 * leaves, left
        self._sums.append((leaves, right))

    def total(self) -> list[Tensor]:
        """The sum of all leaves."""
        ((_, total),) = self._sums
        return total


def tree_sum(leaves: Iterable[Iterable[Tensor]]) -> list[Tensor]:
    """The sum of a power of two of leaves, as `BinaryTree` adds them, in place of the first."""
    tree = BinaryTree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.total()
