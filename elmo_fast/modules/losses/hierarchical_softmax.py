"""The softmax as paths through Huffman's tree."""

import math
from typing import Any

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.losses.vocabulary_loss import CHUNK_BYTES, VocabularyLoss, copy_counts
from elmo_fast.op_choices import Backend, Precision


class HierarchicalSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word along its path through Huffman's tree, in training and otherwise.

        loss = Σ_n -Σ_{j on the path to t} ln σ((1 - 2 c_j) (h_n · w_j + b_j))            t = targets_n

    The probabilities of all words sum to 1, whatever the table: its perplexity is exact and compares with a softmax's.

    Args:
        num_words: V, at least 2.
        embedding_dim: D.
        counts: how often each word occurs, [V], 0 or more: frequent words have short paths.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        precision, backend: as elmo_fast.ops.hierarchical_softmax's.

    Attributes:
        softmax_w: [V - 1, D], softmax_b: [V - 1], a row for each inner node; counts: [V] int64, in the state_dict.

    Raises: ElmoFastError.

    Source: Morin and Bengio 2005; Mikolov et al. 2013b, section 2.1.
    """

    name = "hierarchical_softmax"
    ops_used = ("hierarchical_softmax",)
    wants_counts = True
    explanation = "hierarchical softmax: exact, by the model's own tree, under which the words' probabilities sum to 1"

    counts: Tensor

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        counts: Tensor,
        sparse: bool = False,
        *,
        precision: Precision = "float32",
        backend: Backend = "auto",
    ) -> None:
        if num_words < 2:
            raise ElmoFastError(f"num_words must be 2 or more, as a tree of one word has no node; got {num_words}")
        held = copy_counts(counts, num_words)
        super().__init__(num_words - 1, embedding_dim, sparse, precision, backend)
        self.register_buffer("counts", held)

    @classmethod
    def table_rows(cls, words: int) -> int:
        """One for each inner node of the tree."""
        return words - 1

    @classmethod
    def max_rows_used(cls, words: int, samples: int, positions: int) -> int:
        """Those of the nodes on as many paths as there are positions."""
        return min(cls.table_rows(words), math.ceil(2 * positions * cls.products(words, samples)))

    def gradient_rows(self, positions: int) -> int:
        """One for each step of a path, all paths as long as the longest."""
        return positions * self.tree.longest

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        """One for each node of a path."""
        return math.log2(words)

    @property
    def tree(self) -> ops.HuffmanTree:
        """Huffman's tree of the counts, on their device."""
        if self.counts.is_meta:
            raise ElmoFastError(
                "hierarchical_softmax: the tree needs the values of counts, which has none on the device meta"
            )
        device = self.counts.device
        made: ops.HuffmanTree = self._cache(self.counts, lambda counts: ops.huffman_tree(counts).to(device))
        return made

    def training_losses(self, hidden: Tensor, targets: Tensor, drawn: Any = None) -> Tensor:
        """-ln p of each target, [N], in one call; arguments as VocabularyLoss.training_losses'."""
        settings = self._settings("hierarchical_softmax")
        return ops.hierarchical_softmax(hidden, targets, *self.table(), self.tree, sparse=self.sparse, **settings)

    def exact_losses(self, hidden: Tensor, targets: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
        """The same, so many rows at a time that the logits of their paths fit into chunk_bytes."""
        at_once = max(1, chunk_bytes // (self.tree.longest * hidden.shape[1] * hidden.element_size()))
        chunks = zip(hidden.split(at_once), targets.split(at_once), strict=True)
        return torch.cat([self.training_losses(some, words) for some, words in chunks])
