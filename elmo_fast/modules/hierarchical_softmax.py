"""The softmax as paths through Huffman's tree."""

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.output_table import OutputTable, checked_counts


class HierarchicalSoftmaxLoss(OutputTable):
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

    counts: Tensor

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        counts: Tensor,
        sparse: bool = False,
        *,
        precision: str = "float32",
        backend: str = "auto",
    ) -> None:
        if num_words < 2:
            raise ElmoFastError(f"num_words must be 2 or more, as a tree of one word has no node; got {num_words}")
        held = checked_counts(counts, num_words)
        super().__init__(num_words - 1, embedding_dim, sparse, precision, backend)
        self.register_buffer("counts", held)
        self._made: tuple[Tensor, ops.HuffmanTree] | None = None

    @property
    def tree(self) -> ops.HuffmanTree:
        """Huffman's tree of the counts, on their device."""
        counts = self.counts
        if counts.is_meta:
            raise ElmoFastError("hierarchical_softmax: the tree is made of the counts, which have no values on meta")
        if self._made is None or self._made[0].device != counts.device or not torch.equal(self._made[0], counts):
            self._made = counts.clone(), ops.huffman_tree(counts.cpu()).to(counts.device)
        return self._made[1]

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """The sum over the batch of the cross entropies, in nats; arguments as SampledSoftmaxLoss's."""
        if embeddings.shape[0] == 0:
            return embeddings.new_zeros(())
        options = {"sparse": self.sparse, **self._how("hierarchical_softmax")}
        return ops.hierarchical_softmax(embeddings, targets.long(), *self._tables(), self.tree, **options).sum()
