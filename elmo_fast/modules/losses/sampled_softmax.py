"""The softmax over a large vocabulary: sampled while training, whole otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.modules.losses.vocabulary_loss import CHUNK_BYTES, VocabularyLoss
from elmo_fast.op_choices import Backend, Precision
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS


def log_uniform_choice(num_words: int, num_samples: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Distinct word ids drawn by the log-uniform law, and the number of tries; seeded by torch's generator."""
    seed, offset = torch.randint(2**62, (2,)).tolist()
    ids, tries = ops.log_uniform_sample(num_samples, num_words, seed=seed, offset=offset)
    return ids.numpy(), int(tries)


class SampledSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word: against a sample of the vocabulary while training, against all of it otherwise.

    Args:
        num_words: V, words sorted by falling frequency, no padding among them.
        embedding_dim: D.
        num_samples: S, words drawn per call; at most V.
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

    name = "sampled_softmax"
    ops_used = ("log_uniform_sample", "sampled_softmax", "full_softmax")
    draws = True
    perplexity = "sampled_perplexity"

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
        precision: Precision = "float32",
        backend: Backend = "auto",
    ) -> None:
        if not 0 < num_samples <= num_words:
            raise ElmoFastError(f"num_samples must be from 1 to num_words={num_words}; got {num_samples}")
        check_choice("semantics", semantics, sorted(CORRECTIONS))
        super().__init__(num_words, embedding_dim, sparse, precision, backend)
        self.tie_embeddings = False
        self.use_character_inputs, self.semantics = use_character_inputs, semantics
        self._unk_id, self._embedding_dim = unk_id, embedding_dim
        self.num_words, self.num_samples = num_words, num_samples
        self.choice_func: Callable[[int, int], tuple[Any, Any]] = log_uniform_choice

    def draw(self, seed: int, offset: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The words that one direction draws for one step, [S] int64, and the number of tries, [] int64: a function
        of seed and offset."""
        backend = ops.backend_for("log_uniform_sample", self.backend)
        return ops.log_uniform_sample(
            self.num_samples, self.num_words, seed=seed, offset=offset, device=device, backend=backend
        )

    def _draw_now(self, device: torch.device) -> tuple[Tensor, Tensor | int]:
        ids, tries = self.choice_func(self.num_words, self.num_samples)
        samples = torch.as_tensor(ids, dtype=torch.int64).to(device, non_blocking=True)
        return samples, tries if isinstance(tries, Tensor) else int(tries)

    def training_losses(self, hidden: Tensor, targets: Tensor, drawn: Any) -> Tensor:
        """Cross entropy of each position against the words drawn, [N]; as VocabularyLoss.training_losses."""
        options = {"correction": self.semantics, "sparse": self.sparse, **self._settings("sampled_softmax")}
        return ops.sampled_softmax(hidden, targets, *self.table(), *drawn, **options)

    def _evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        w, b = self.table()
        small = hidden.shape[0] * w.shape[0] * hidden.element_size() <= CHUNK_BYTES
        if small and self.precision == "float32":  # the same sums in the same order as AllenNLP's, to the last bit
            return F.nll_loss(F.log_softmax(hidden @ w.t() + b, dim=-1), targets, reduction="sum")
        return super()._evaluate(hidden, targets)
