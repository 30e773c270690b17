"""The softmax over the whole vocabulary, while training too."""

from torch import Tensor

from elmo_fast import ops
from elmo_fast.modules.output_table import OutputTable


class FullSoftmaxLoss(OutputTable):
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

    def __init__(
        self, num_words: int, embedding_dim: int, *, precision: str = "float32", backend: str = "auto"
    ) -> None:
        super().__init__(num_words, embedding_dim, False, precision, backend)

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """The sum over the batch of the cross entropies, in nats; arguments as SampledSoftmaxLoss's."""
        if embeddings.shape[0] == 0:
            return embeddings.new_zeros(())
        return ops.full_softmax(embeddings, targets.long(), *self._tables(), **self._how("full_softmax")).sum()
