"""The softmax over the whole vocabulary, while training too."""

from typing import Any

from torch import Tensor

from elmo_fast.modules.losses.vocabulary_loss import CHUNK_BYTES, VocabularyLoss
from elmo_fast.op_choices import Backend, Precision


class FullSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word against the whole vocabulary, in chunks: no more than 32 MiB of logits at a time.

        loss = Σ_n ln(Σ_v exp(h_n · w_v + b_v)) - (h_n · w_t + b_t)            t = targets_n

    Args:
        num_words: V.
        embedding_dim: D.
        precision, backend: as elmo_fast.ops.full_softmax's.

    Attributes:
        softmax_w: [V, D], softmax_b: [V].

    Raises: ElmoFastError.
    """

    name = "full_softmax"
    ops_used = ("full_softmax",)

    def __init__(
        self, num_words: int, embedding_dim: int, *, precision: Precision = "float32", backend: Backend = "auto"
    ) -> None:
        super().__init__(num_words, embedding_dim, False, precision, backend)

    @classmethod
    def max_rows_used(cls, words: int, samples: int, positions: int) -> int:
        """All: the gradient is dense."""
        return words

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        """One for each word of the vocabulary."""
        return words

    def training_losses(self, hidden: Tensor, targets: Tensor, drawn: Any = None) -> Tensor:
        """As exact_losses."""
        return self._full_losses(hidden, targets, self.table()[1], CHUNK_BYTES)
