"""word2vec's negative sampling as a loss over a vocabulary."""

import math
from typing import Any

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules.losses.vocabulary_loss import CHUNK_BYTES, VocabularyLoss, copy_counts
from elmo_fast.op_choices import Backend, Precision

NOISE_POWER = 0.75


class NegativeSamplingLoss(VocabularyLoss):
    """Negative sampling while training; otherwise the cross entropy of its scores, normalised over the vocabulary.

        s_nk = h_n · w_k + b_k,    P_k ∝ counts_k^power
        training:  loss = Σ_n -ln σ(s_nt) - K/S Σ_{k drawn from P, k ≠ t} ln σ(-s_nk)            t = targets_n
        otherwise: loss = Σ_n -ln softmax_k(s_nk + ln P_k)_t

    The scores are no logits: at the optimum s is ln(p(k | h) / P_k) - ln K, so ln P_k is added.

    Args:
        num_words: V.
        embedding_dim: D.
        num_samples: S, words drawn per call with replacement, shared by all rows.
        counts: how often each word occurs, [V]; 0 counts as 1, so that every word has a chance.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        negatives: K, as how many words of noise the S count against a target; None: S.
        power: of the counts.
        precision, backend: as elmo_fast.ops.negative_sampling's.

    Attributes:
        softmax_w: [V, D]; softmax_b: [V], which starts at -ln K, where the model's probabilities are P's;
        counts: [V] int64, in the state_dict.

    Raises: ElmoFastError.

    Source: Mikolov et al. 2013b, section 2.2; Levy and Goldberg 2014, section 3.1 (the optimum).
    """

    name = "negative_sampling"
    ops_used = ("alias_sample", "negative_sampling", "full_softmax")
    draws = wants_counts = True
    perplexity = None
    explanation = (
        "negative sampling trains scores that are no probabilities: here ln of the noise's law is added to them, and "
        "the sum normalised over the whole vocabulary"
    )

    counts: Tensor

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        num_samples: int,
        counts: Tensor,
        sparse: bool = False,
        *,
        negatives: float | None = None,
        power: float = NOISE_POWER,
        precision: Precision = "float32",
        backend: Backend = "auto",
    ) -> None:
        held = copy_counts(counts, num_words).clamp(min=1)
        check_counts(num_samples=num_samples)
        if negatives is not None and not 0 < negatives < math.inf:
            raise ElmoFastError(f"negatives must be above 0 and finite, or None; got {negatives}")
        super().__init__(num_words, embedding_dim, sparse, precision, backend)
        self.num_samples, self.negatives, self.power = num_samples, negatives, power
        self.register_buffer("counts", held)
        with torch.no_grad():
            self.table()[1].fill_(self.initial_bias)

    @property
    def initial_bias(self) -> float:
        """-ln K, where the model's probabilities are the noise's: from 0 the K words of noise outweigh the target."""
        return -math.log(self.num_samples if self.negatives is None else self.negatives)

    def log_noise(self) -> Tensor:
        """ln P of the words drawn, [V], dtype and device of the bias."""
        return (self.power * self.counts.double().log()).log_softmax(0).to(self.table()[1])

    def draw(self, seed: int, offset: int, device: torch.device) -> Tensor:
        """The words of noise that one direction draws for one step, [S] int64: a function of seed and offset."""
        backend = ops.backend_for("alias_sample", self.backend)
        table = self._cache(self.counts, lambda counts: ops.alias_table(counts, power=self.power))
        return ops.alias_sample(self.num_samples, table, seed=seed, offset=offset, device=device, backend=backend)

    def _draw_now(self, device: torch.device) -> Tensor:
        if device.type == "meta":  # where the counts have no values
            return torch.empty(self.num_samples, dtype=torch.int64, device=device)
        drawn: Tensor = super()._draw_now(device)
        return drawn

    def training_losses(self, hidden: Tensor, targets: Tensor, drawn: Any) -> Tensor:
        """The objective of each position, [N]; arguments as VocabularyLoss.training_losses'."""
        options = {"negatives": self.negatives, "sparse": self.sparse, **self._settings("negative_sampling")}
        return ops.negative_sampling(hidden, targets, *self.table(), drawn, **options)

    def exact_losses(self, hidden: Tensor, targets: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
        """-ln p of each target, [N]: of the softmax over the vocabulary of the scores, ln P added to them."""
        return self._full_losses(hidden, targets, self.table()[1] + self.log_noise(), chunk_bytes)
