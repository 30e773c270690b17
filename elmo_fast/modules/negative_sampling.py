"""word2vec's negative sampling as a loss over a vocabulary."""

import math

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.output_table import OutputTable, checked_counts


class NegativeSamplingLoss(OutputTable):
    """Negative sampling while training; otherwise the cross entropy of its scores, normalised over the vocabulary.

        s_nk = h_n · w_k + b_k,    P_k ∝ counts_k^power
        training:  loss = Σ_n -ln σ(s_nt) - K/S Σ_{k drawn from P, k ≠ t} ln σ(-s_nk)            t = targets_n
        otherwise: loss = Σ_n -ln softmax_k(s_nk + ln P_k)_t

    The scores are no logits: at the optimum s is ln(p(k | h) / P_k) - ln K, whence the ln P_k that is added.

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
        softmax_w: [V, D]; softmax_b: [V], which begins at -ln K, where the model says what P says; counts: [V] int64,
            in the state_dict.

    Raises: ElmoFastError.

    Source: Mikolov et al. 2013b, section 2.2; Levy and Goldberg 2014, section 3.1 (the optimum).
    """

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
        power: float = 0.75,
        precision: str = "float32",
        backend: str = "auto",
    ) -> None:
        held = checked_counts(counts, num_words).clamp(min=1)
        if num_samples < 1:
            raise ElmoFastError(f"num_samples must be 1 or more; got {num_samples}")
        if negatives is not None and not 0 < negatives < math.inf:
            raise ElmoFastError(f"negatives must be above 0 and finite, or None; got {negatives}")
        super().__init__(num_words, embedding_dim, sparse, precision, backend)
        self.num_samples, self.negatives, self.power = num_samples, negatives, power
        self.register_buffer("counts", held)
        with torch.no_grad():
            self._tables()[1].fill_(-math.log(num_samples if negatives is None else negatives))
        self._made: tuple[Tensor, ops.AliasTable] | None = None

    def _noise(self) -> ops.AliasTable:
        counts = self.counts.cpu()
        if self._made is None or not torch.equal(self._made[0], counts):  # a state_dict brings others
            self._made = counts.clone(), ops.alias_table(counts, power=self.power)
        return self._made[1]

    def _drawn(self, device: torch.device) -> Tensor:
        if device.type == "meta":  # where the counts have no values
            return torch.empty(self.num_samples, dtype=torch.int64, device=device)
        seed, offset = torch.randint(2**62, (2,)).tolist()
        return ops.alias_sample(self.num_samples, self._noise(), seed=seed, offset=offset, device=device)

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """The sum over the batch of the losses, in nats; arguments as SampledSoftmaxLoss's."""
        if embeddings.shape[0] == 0:
            return embeddings.new_zeros(())
        weight, bias = self._tables()
        if not self.training:
            log_noise = (self.power * self.counts.double().log()).log_softmax(0).to(bias)
            how = self._how("full_softmax")
            return ops.full_softmax(embeddings, targets.long(), weight, bias + log_noise, **how).sum()
        samples = self._drawn(embeddings.device)
        options = {"negatives": self.negatives, "sparse": self.sparse, **self._how("negative_sampling")}
        return ops.negative_sampling(embeddings, targets.long(), weight, bias, samples, **options).sum()
