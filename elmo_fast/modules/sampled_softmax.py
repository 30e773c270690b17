"""The softmax over a large vocabulary: sampled while training, whole otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.output_table import OutputTable

CORRECTIONS = ("allennlp", "allennlp-0.9", "tensorflow")
_WHOLE_BYTES = 32 * 2**20


def log_uniform_choice(num_words: int, num_samples: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Distinct word ids drawn by the log-uniform law, and the number of tries; seeded by torch's generator."""
    seed, offset = torch.randint(2**62, (2,)).tolist()
    ids, tries = ops.log_uniform_sample(num_samples, num_words, seed=seed, offset=offset)
    return ids.numpy(), int(tries)


class SampledSoftmaxLoss(OutputTable):
    """Cross entropy of the next word: against a sample of the vocabulary while training, against all of it otherwise.

    Args:
        num_words: V, words sorted by falling frequency, no padding among them.
        embedding_dim: D.
        num_samples: S, words drawn per call; less than V.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        unk_id: kept as AllenNLP does, and unused as there.
        use_character_inputs: as unk_id.
        use_fast_sampler: accepted for AllenNLP's sake: there is one sampler, in C++ where the extension is there.
        semantics: whose expected counts correct the logits: "tensorflow" (bilm-tf), "allennlp" (2.x) or "allennlp-0.9".
        precision, backend: as elmo_fast.ops.sampled_softmax's.

    Attributes:
        softmax_w: [V, D], softmax_b: [V].
        choice_func: (num_words, num_samples) -> (distinct ids, number of tries), arrays or tensors; may be replaced.
            What it leaves on the GPU is never read on the host.

    Raises: ElmoFastError.

    Source: Jean et al. 2015, section 3; AllenNLP's `SampledSoftmaxLoss`; tf.nn.sampled_softmax_loss.
    """

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        num_samples: int,
        sparse: bool = False,
        unk_id: int | None = None,
        use_character_inputs: bool = True,
        use_fast_sampler: bool = False,
        *,
        semantics: str = "allennlp",
        precision: str = "float32",
        backend: str = "auto",
    ) -> None:
        if not 0 < num_samples < num_words:
            raise ElmoFastError(f"num_samples must be from 1 to num_words-1={num_words - 1}; got {num_samples}")
        if semantics not in CORRECTIONS:
            raise ElmoFastError(f"semantics must be one of {', '.join(CORRECTIONS)}; got {semantics!r}")
        super().__init__(num_words, embedding_dim, sparse, precision, backend)
        self.tie_embeddings = False
        self.use_character_inputs, self.semantics = use_character_inputs, semantics
        self._unk_id, self._embedding_dim = unk_id, embedding_dim
        self._num_words, self._num_samples = num_words, num_samples
        self.choice_func: Callable[[int, int], tuple[Any, Any]] = log_uniform_choice

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """The sum over the batch of the cross entropies, in nats.

        Args:
            embeddings: [N, D].
            targets: the words wanted, [N], whole numbers from 0 to V-1.
            target_token_embedding: not used (AllenNLP's name for tied embeddings, which it never had).
        """
        if embeddings.shape[0] == 0:
            return embeddings.new_zeros(())
        losses = self._sampled if self.training else self._whole
        return losses(embeddings, targets.long())

    def _sampled(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        ids, tries = self.choice_func(self._num_words, self._num_samples)
        samples = torch.as_tensor(ids, dtype=torch.int64).to(embeddings.device, non_blocking=True)
        w, b = self._tables()
        losses = ops.sampled_softmax(
            embeddings,
            targets,
            w,
            b,
            samples,
            tries if isinstance(tries, Tensor) else int(tries),
            correction=self.semantics,
            sparse=self.sparse,
            precision=self.precision,
            backend=ops.backend_for("sampled_softmax", self.backend),
        )
        return losses.sum()

    def _whole(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        w, b = self._tables()
        small = embeddings.shape[0] * w.shape[0] * embeddings.element_size() <= _WHOLE_BYTES
        if small and self.precision == "float32":  # the same sums in the same order as AllenNLP's, to the last bit
            return F.nll_loss(F.log_softmax(embeddings @ w.t() + b, dim=-1), targets, reduction="sum")
        backend = ops.backend_for("full_softmax", self.backend)
        return ops.full_softmax(embeddings, targets, w, b, precision=self.precision, backend=backend).sum()
