"""Losses of an output layer over a vocabulary: sampled, negative sampling, hierarchical and full softmax."""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError, check_choice, check_counts
from elmo_fast.modules._loading import Module, check_settings, read_uncalled
from elmo_fast.op_choices import LOSS_KINDS, Backend, Loss, LossKind, Precision
from elmo_fast.ops.log_uniform_sample import CORRECTIONS

CHUNK_BYTES = 32 * 2**20
NOISE_POWER = 0.75
# Words sampled where a model's options do not say: it is evaluated only.
_SAMPLES = 8192


class VocabularyLoss(Module):
    """A loss over V words; its table is drawn from N(0, 1/D), its bias starts at `initial_bias`.

    Args:
        num_words: V.
        embedding_dim: D.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        reduction: "sum" | "mean" | "none": what a call returns of its targets' losses.
        ignore_index: a target of this number has no loss and no gradient, and does not count in a mean.
        precision, backend: as the ops'.
        device, dtype: of the table, float32 or float64; None: torch's defaults.

    Attributes:
        softmax_w: [rows, D], softmax_b: [rows], where a table has `kind.rows(V)` rows.
        sparse: whether gradients of the table are sparse rows; may be set, the full softmax uses all rows anyway.
        kind: its name, and what configurations and files know of it; perplexity: what metrics.jsonl calls exp of the
            training loss, None where that is no perplexity; explanation: how exact losses are computed, where they
            are not a plain softmax's.
    """

    kind: ClassVar[LossKind]
    perplexity: ClassVar[str | None] = "training_perplexity"
    explanation: ClassVar[str] = ""

    softmax_w: nn.Embedding | nn.Parameter
    softmax_b: nn.Embedding | nn.Parameter
    num_samples: int
    counts: Tensor

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        sparse: bool = False,
        *,
        reduction: str = "sum",
        ignore_index: int = -100,
        precision: Precision = "float32",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, ("sum", "mean", "none"))
        check_settings(precision, backend, int8=False)
        check_counts(num_words=num_words, embedding_dim=embedding_dim)
        self.num_words, self.embedding_dim = num_words, embedding_dim
        self.sparse, self.precision, self.backend = sparse, precision, backend
        self.reduction, self.ignore_index = reduction, ignore_index
        self._made: tuple[Tensor, object, Any] | None = None
        rows, here = self.kind.rows(num_words), device or torch.get_default_device()
        deviation = math.sqrt(1 / embedding_dim)
        table = torch.empty(rows, embedding_dim, device=here, dtype=dtype).normal_(0, deviation)
        bias = torch.full((rows,), self.initial_bias, device=here, dtype=dtype)
        if sparse:
            self.softmax_w = nn.Embedding.from_pretrained(table, freeze=False, sparse=True)
            self.softmax_b = nn.Embedding.from_pretrained(bias[:, None], freeze=False, sparse=True)
        else:
            self.softmax_w, self.softmax_b = nn.Parameter(table), nn.Parameter(bias)

    @property
    def initial_bias(self) -> float:
        """The value of each bias of a new table."""
        return 0.0

    def gradient_rows(self, positions: int) -> int:
        """Rows of a sparse gradient of `positions` positions of one direction, repeated ones included."""
        return positions + (self.num_samples if self.kind.samples else 0)

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """Return the losses of the targets, in nats: their sum [], mean [] or each [...], as `reduction` says.

        Args:
            embeddings: [..., D].
            targets: the words wanted, [...], whole numbers from 0 to V-1, or ignore_index.
            target_token_embedding: not used (AllenNLP's name for tied embeddings, which it never had).
        """
        if targets.shape != embeddings.shape[:-1]:
            raise ElmoFastError(
                f"{type(self).__name__}: targets must have the shape of embeddings without the last dimension; got "
                f"{list(targets.shape)} and {list(embeddings.shape)}"
            )
        hidden, wanted = embeddings.reshape(-1, embeddings.shape[-1]), targets.reshape(-1).long()
        ignored = wanted == self.ignore_index
        wanted = wanted.masked_fill(ignored, 0)
        if not hidden.shape[0]:
            losses = hidden.new_zeros(0)
        elif self.kind.samples and not self.training:
            losses = self.exact_losses(hidden, wanted)
        else:
            losses = self.training_losses(hidden, wanted, self._draw_now(hidden.device) if self.kind.samples else None)
        losses = losses.masked_fill(ignored, 0)
        if self.reduction == "none":
            return losses.reshape(targets.shape)
        return _total(losses) / (~ignored).sum() if self.reduction == "mean" else _total(losses)

    def draw(self, seed: int, offset: int | Tensor, device: torch.device) -> Any:
        """Return the words that one direction samples for one step: a function of seed and offset.

        Args:
            offset: a number, or a tensor of one on the device, [1] int64, where `draws_on` says so: a CUDA graph may
                then hold the call.
        """
        return None

    def draws_on(self, device: torch.device) -> bool:
        """Return whether the device itself samples, or nothing is sampled."""
        return not self.kind.samples

    def training_losses(self, hidden: Tensor, targets: Tensor, samples: Any) -> Tensor:
        """Return the loss of each position while training, [N], nats: by default the exact one.

        Args:
            hidden: [N, D].
            targets: [N] int64.
            samples: as `draw` returns them.
        """
        return self.exact_losses(hidden, targets)

    def exact_losses(self, hidden: Tensor, targets: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
        """Return -ln p of each target, [N], under probabilities that sum to 1 over the words; logits in chunks."""
        settings = self._settings("full_softmax")
        return ops.full_softmax(hidden, targets, *self.exact_table(), chunk_bytes=chunk_bytes, **settings)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """Return ln p of every word after each row of hidden [N, D], [N, V]: they sum to 1 over the vocabulary."""
        return F.linear(hidden, *self.exact_table()).log_softmax(1)

    def exact_table(self) -> tuple[Tensor, Tensor]:
        """Return the table and the bias whose softmax has the model's probabilities."""
        return self.table()

    def table(self) -> tuple[Tensor, Tensor]:
        """Return the table [rows, D] and its bias [rows]."""
        w, b = self.softmax_w, self.softmax_b
        if isinstance(w, Tensor) and isinstance(b, Tensor):
            return w, b
        read_uncalled(w, b)  # type: ignore[arg-type]
        return w.weight, b.weight.squeeze(1)  # type: ignore[union-attr]

    def _draw_now(self, device: torch.device) -> Any:
        """As `draw`, seeded by torch's generator."""
        seed, offset = torch.randint(2**62, (2,), device="cpu").tolist()
        return self.draw(seed, offset, device)

    def _settings(self, op: str) -> dict[str, Any]:
        return {"precision": self.precision, "backend": ops.backend_for(op, self.backend)}

    def _cache(self, counts: Tensor, make: Callable[[Tensor], Any]) -> Any:
        """Return `make(counts on the CPU)`, again when they changed or the table moved.

        Comparing values would wait for a GPU.
        """
        if torch.compiler.is_compiling() and self._made is not None:
            return self._made[2]
        version = 0 if counts.is_inference() else counts._version, next(self.parameters()).device
        if self._made is None or self._made[0] is not counts or self._made[1] != version:
            self._made = counts, version, make(counts.cpu())
        return self._made[2]


def _total(losses: Tensor) -> Tensor:
    """Return the sum of losses [N]; parts are so short that torch's threads do not divide their sums."""
    parts = losses.split(2**14)
    return torch.stack([part.sum() for part in parts]).sum() if len(parts) > 1 else losses.sum()


def _copy_counts(counts: Tensor | None, num_words: int) -> Tensor:
    copied = torch.as_tensor([] if counts is None else counts, device="cpu").detach().to(torch.int64, copy=True)
    if copied.shape != (num_words,) or not copied.numel() or int(copied.min()) < 0:
        raise ElmoFastError(
            f"counts must say how often each of the num_words={num_words} words occurs, [V], 0 or more; got shape "
            f"{tuple(copied.shape)}" + (f" from {int(copied.min())} up" if copied.numel() else "")
        )
    return copied


def log_uniform_choice(num_words: int, num_samples: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Distinct word ids drawn by the log-uniform law, and the number of tries; seeded by torch's generator."""
    seed, offset = torch.randint(2**62, (2,), device="cpu").tolist()
    ids, tries = ops.log_uniform_sample(num_samples, num_words, seed=seed, offset=offset)
    return ids.numpy(), int(tries)


class SampledSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word: against a sample of the vocabulary while training, against all of it otherwise.

    Args:
        num_words: V, words sorted by falling frequency, no padding among them.
        embedding_dim: D.
        num_samples: S, words drawn per call; at most V.
        unk_id, use_character_inputs, use_fast_sampler: AllenNLP's, without an effect.
        semantics: whose expected counts correct the logits: "tensorflow" (bilm-tf), "allennlp" (2.x) or "allennlp-0.9".
        sparse, options: as in VocabularyLoss.

    Attributes:
        softmax_w: [V, D], softmax_b: [V].
        choice_func: (num_words, num_samples) -> (distinct ids, number of tries), arrays or tensors; may be replaced.
            What it leaves on the GPU is never read on the host.

    Raises: ElmoFastError.

    Source: Jean et al. 2015, section 3; AllenNLP's `SampledSoftmaxLoss`; tf.nn.sampled_softmax_loss.
    """

    kind = LOSS_KINDS["sampled_softmax"]
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
        **options: Any,
    ) -> None:
        check_counts(num_samples=num_samples)
        if num_samples > num_words:
            raise ElmoFastError(f"num_samples must be from 1 to num_words={num_words}; got {num_samples}")
        check_choice("semantics", semantics, sorted(CORRECTIONS))
        super().__init__(num_words, embedding_dim, sparse, **options)
        self.semantics, self.num_samples = semantics, num_samples
        self.choice_func: Callable[[int, int], tuple[Any, Any]] = log_uniform_choice

    def draws_on(self, device: torch.device) -> bool:
        """Return whether the device itself samples."""
        backend = ops.backend_for("log_uniform_sample", self.backend)
        return (ops.explain("log_uniform_sample", device).backend if backend == "auto" else backend) == "triton"

    def draw(self, seed: int, offset: int | Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the words that one direction samples for one step, [S] int64, and the number of tries, [] int64."""
        backend = ops.backend_for("log_uniform_sample", self.backend)
        return ops.log_uniform_sample(
            self.num_samples, self.num_words, seed=seed, offset=offset, device=device, backend=backend
        )

    def _draw_now(self, device: torch.device) -> tuple[Tensor, Tensor | int]:
        ids, tries = self.choice_func(self.num_words, self.num_samples)
        here = ids.device if isinstance(ids, Tensor) else "cpu"
        samples = torch.as_tensor(ids, dtype=torch.int64, device=here).to(device, non_blocking=True)
        return samples, tries if isinstance(tries, Tensor) else int(tries)

    def training_losses(self, hidden: Tensor, targets: Tensor, samples: Any) -> Tensor:
        """Cross entropy of each position against the words drawn, [N]; as VocabularyLoss.training_losses."""
        options = {"correction": self.semantics, "sparse": self.sparse, **self._settings("sampled_softmax")}
        return ops.sampled_softmax(hidden, targets, *self.table(), *samples, **options)


class NegativeSamplingLoss(VocabularyLoss):
    """Negative sampling while training; otherwise the cross entropy of its scores, normalised over the vocabulary.

        s_nk = h_n · w_k + b_k,    P_k ∝ counts_k^power
        training:   loss = Σ_n -ln σ(s_nt) - K/S Σ_{k drawn from P, k ≠ t} ln σ(-s_nk)            t = targets_n
        otherwise:  loss = Σ_n -ln softmax_k(s_nk + ln P_k)_t

    The scores are no logits: at the optimum s is ln(p(k | h) / P_k) - ln K, so ln P_k is added.

    Args:
        num_words: V.
        embedding_dim: D.
        num_samples: S, words drawn per call with replacement, shared by all rows.
        counts: how often each word occurs, [V]; 0 counts as 1, so that every word has a chance.
        sparse, options: as in VocabularyLoss.
        negatives: K, as how many words of noise the S count against a target; None: S.
        power: of the counts.

    Attributes:
        softmax_w: [V, D]; softmax_b: [V], which starts at -ln K, where the model's probabilities are P's;
        counts: [V] int64, in the state_dict.

    Raises: ElmoFastError.

    Source: Mikolov et al. 2013b, section 2.2; Levy and Goldberg 2014, section 3.1 (the optimum).
    """

    kind = LOSS_KINDS["negative_sampling"]
    perplexity = None
    explanation = (
        "negative sampling trains scores that are no probabilities: here ln of the noise's law is added to them, and "
        "the sum normalised over the whole vocabulary"
    )

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
        **options: Any,
    ) -> None:
        copied = _copy_counts(counts, num_words).clamp(min=1)
        check_counts(num_samples=num_samples)
        if negatives is not None and not 0 < negatives < math.inf:
            raise ElmoFastError(f"negatives must be above 0 and finite, or None; got {negatives}")
        self.num_samples, self.negatives, self.power = num_samples, negatives, power  # `initial_bias` reads them
        super().__init__(num_words, embedding_dim, sparse, **options)
        self.register_buffer("counts", copied.to(options.get("device") or "cpu"))

    @property
    def initial_bias(self) -> float:
        """-ln K, where the model's probabilities are the noise's: from 0 the K words of noise outweigh the target."""
        return -math.log(self.num_samples if self.negatives is None else self.negatives)

    def log_noise(self) -> Tensor:
        """Return ln P of each word as it is drawn, [V], dtype and device of the bias."""
        return (self.power * self.counts.double().log()).log_softmax(0).to(self.table()[1])

    def draw(self, seed: int, offset: int | Tensor, device: torch.device) -> Tensor:
        """Return the words of noise that one direction samples for one step, [S] int64."""
        table = self._cache(self.counts, lambda counts: ops.alias_table(counts, power=self.power))
        return ops.alias_sample(self.num_samples, table, seed=seed, offset=int(offset), device=device)

    def training_losses(self, hidden: Tensor, targets: Tensor, samples: Any) -> Tensor:
        """Return the objective of each position, [N]; arguments as VocabularyLoss.training_losses'."""
        options = {"negatives": self.negatives, "sparse": self.sparse, **self._settings("negative_sampling")}
        return ops.negative_sampling(hidden, targets, *self.table(), samples, **options)

    def exact_table(self) -> tuple[Tensor, Tensor]:
        """Return the table and the bias with ln P added."""
        table, bias = self.table()
        return table, bias + self.log_noise()


class HierarchicalSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word along its path through Huffman's tree, in training and otherwise.

        loss = Σ_n -Σ_{j on the path to t} ln σ((1 - 2 c_j) (h_n · w_j + b_j))            t = targets_n

    The probabilities of all words sum to 1, whatever the table: its perplexity is exact and compares with a softmax's.

    Args:
        num_words: V, at least 2.
        embedding_dim: D.
        counts: how often each word occurs, [V], 0 or more: frequent words have short paths.
        sparse, options: as in VocabularyLoss.

    Attributes:
        softmax_w: [V - 1, D], softmax_b: [V - 1], a row for each inner node; counts: [V] int64, in the state_dict.

    Raises: ElmoFastError.

    Source: Morin and Bengio 2005; Mikolov et al. 2013b, section 2.1.
    """

    kind = LOSS_KINDS["hierarchical_softmax"]
    explanation = "hierarchical softmax: exact, by the model's own tree, under which the words' probabilities sum to 1"

    def __init__(
        self,
        num_words: int,
        embedding_dim: int,
        counts: Tensor,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        if num_words < 2:
            raise ElmoFastError(f"num_words must be 2 or more, as a tree of one word has no node; got {num_words}")
        copied = _copy_counts(counts, num_words)
        super().__init__(num_words, embedding_dim, sparse, **options)
        self.register_buffer("counts", copied.to(options.get("device") or "cpu"))

    def gradient_rows(self, positions: int) -> int:
        """One for each step of a path, all paths as long as the longest."""
        return positions * self.tree.longest

    @property
    def tree(self) -> ops.HuffmanTree:
        """Huffman's tree of the counts, on the table's device."""
        device = next(self.parameters()).device
        return self._cache(self.counts, lambda counts: ops.huffman_tree(counts).to(device))

    def training_losses(self, hidden: Tensor, targets: Tensor, samples: Any = None) -> Tensor:
        """-ln p of each target, [N], in one call; arguments as VocabularyLoss.training_losses'."""
        settings = self._settings("hierarchical_softmax")
        return ops.hierarchical_softmax(hidden, targets, *self.table(), self.tree, sparse=self.sparse, **settings)

    def exact_losses(self, hidden: Tensor, targets: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
        """Return the same, so many rows at a time that the logits of their paths fit into chunk_bytes."""
        at_once = max(1, chunk_bytes // (self.tree.longest * hidden.shape[1] * hidden.element_size()))
        chunks = zip(hidden.split(at_once), targets.split(at_once), strict=True)
        return torch.cat([self.training_losses(some, words) for some, words in chunks])

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """As VocabularyLoss.log_probabilities: along the path of every word."""
        words = torch.arange(len(self.counts), device=hidden.device)
        return torch.stack([-self.exact_losses(row.expand(len(words), -1), words) for row in hidden])


class FullSoftmaxLoss(VocabularyLoss):
    """Cross entropy of the next word against the whole vocabulary, in chunks: no more than 32 MiB of logits at a time.

        loss = Σ_n ln(Σ_v exp(h_n · w_v + b_v)) - (h_n · w_t + b_t)            t = targets_n

    Args:
        num_words: V.
        embedding_dim: D.
        options: as in VocabularyLoss.

    Attributes:
        softmax_w: [V, D], softmax_b: [V].

    Raises: ElmoFastError.
    """

    kind = LOSS_KINDS["full_softmax"]

    def __init__(self, num_words: int, embedding_dim: int, **options: Any) -> None:
        super().__init__(num_words, embedding_dim, **options)


LOSS_CLASSES: dict[str, type[VocabularyLoss]] = {
    loss.kind.name: loss
    for loss in (SampledSoftmaxLoss, NegativeSamplingLoss, HierarchicalSoftmaxLoss, FullSoftmaxLoss)
}


def fitting_loss(name: Loss, words: int, samples: int) -> Loss:
    """Return the loss to train with: the full softmax where fewer words exist than are sampled, which are distinct."""
    return "full_softmax" if name == "sampled_softmax" and samples > words else name


def loss_of(
    options: ElmoOptions,
    *,
    counts: Tensor | None = None,
    negatives: float | None = None,
    precision: Precision = "float32",
    backend: Backend = "auto",
) -> VocabularyLoss:
    """Return the loss that a model's options name, its table drawn from N(0, 1/D) as bilm-tf draws it.

    counts: how often each word is a target, [V], for a loss that needs them; negatives: as of NegativeSamplingLoss.

    Raises ElmoFastError where the counts are missing.
    """
    kind, words, dim = options.loss_kind, options.n_tokens_vocab or 0, options.lstm.projection_dim
    samples = options.n_negative_samples_batch or _SAMPLES
    own: dict[str, dict[str, Any]] = {
        "sampled_softmax": {"num_samples": min(samples, words), "semantics": "tensorflow"},
        "negative_sampling": {"num_samples": samples, "counts": counts, "negatives": negatives},
        "hierarchical_softmax": {"counts": counts},
        "full_softmax": {},
    }
    return LOSS_CLASSES[kind.name](words, dim, **own[kind.name], precision=precision, backend=backend)


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """torch.nn.utils.clip_grad_norm_, for gradients of which some are sparse rows: torch's cannot clip those.

        g <- g · min(1, max_norm / (|g| + 1e-6)), |g| of all gradients together, rows of one word added up first

    Args:
        parameters: those whose `grad` is clipped; sparse ones are coalesced.
        max_norm: the most that the norm may be.
        norm_type: p of the norm, which may be infinite.
        error_if_nonfinite: RuntimeError if the norm is NaN or infinite.

    Returns: the norm before the clip, [].
    """
    gradients = []
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
        if parameter.grad is not None:
            gradients.append(parameter.grad._values() if parameter.grad.is_sparse else parameter.grad)
    norm = nn.utils.get_total_norm(gradients, norm_type, error_if_nonfinite)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))
    return norm
