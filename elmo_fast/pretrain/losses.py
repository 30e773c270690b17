"""The losses by name: which table each has, what it is while training, how its perplexity is computed."""

import abc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.corpus import Corpus

if TYPE_CHECKING:
    from elmo_fast.pretrain.language_model import LanguageModel

NOISE_POWER = 0.75


def target_counts(corpus: Corpus) -> Tensor:
    """How often each word of the vocabulary is to be predicted in an epoch, at least 1, [V] float32.

    A sentence's end is </S> forward and <S> backward; words outside the vocabulary are <UNK>. float32, as checkpoints
    keep it, so that what was trained with is what is read back: counts above 2^24 are rounded to 24 bits.
    """
    vocabulary = corpus.vocabulary
    counts = torch.from_numpy(corpus.counts.astype("int64"))
    words = counts[: len(vocabulary)].clone()
    words[vocabulary.unk] += counts[len(vocabulary) :].sum()
    words[vocabulary.eos] += corpus.sentences
    words[vocabulary.bos] += corpus.sentences
    return words.clamp(min=1).float()


def log_noise(counts: Tensor) -> Tensor:
    """ln P of words drawn with a chance in proportion to counts^0.75, [V], dtype of counts (Mikolov et al. 2013b)."""
    return (NOISE_POWER * counts.double().log()).log_softmax(0).to(counts.dtype)


class Loss(abc.ABC):
    """What a model's hidden states are asked for; one object per model, since it keeps what it made of the counts.

    name: as the configuration's; called: its ops; wants_counts: whether the model must know how often each word was to
    be predicted; perplexity: what exp of the training loss is called in metrics.jsonl, None where it is no perplexity;
    said: how `exact` comes to its figures, where they are not of a plain softmax.
    """

    name = ""
    called: tuple[str, ...] = ()
    wants_counts = False
    draws = False
    perplexity: str | None = "training_perplexity"
    said = ""

    def __init__(self, model: "LanguageModel") -> None:
        self.model = model
        self._made: dict[torch.device, Any] = {}

    @classmethod
    def rows(cls, words: int) -> int:
        """Rows of the table for a vocabulary of V words."""
        return words

    @classmethod
    def touched(cls, words: int, samples: int, positions: int) -> int:
        """At most so many rows have a gradient in a step of so many positions of each direction."""
        return min(words, 2 * (samples * cls.draws + positions))

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        """Inner products of D per position, direction and forward pass while training, about."""
        return samples + 1

    @classmethod
    def bias(cls, samples: int, negatives: float | None) -> float:
        """Where the bias of the table begins."""
        return 0.0

    def draw(self, samples: int, seed: int, offset: int, device: torch.device) -> Any:
        """The words drawn at one step for one direction: of seed and offset alone, so the same in all processes."""
        return None

    @abc.abstractmethod
    def training(
        self, hidden: Tensor, targets: Tensor, drawn: Any, *, negatives: float | None = None, sparse: bool = True
    ) -> Tensor:
        """The loss of each position while training, [N], nats.

        hidden: [N, D]; targets: [N] int64; drawn: of `draw`; negatives: of negative sampling, K; sparse: the table's
        gradient as the rows used (the full softmax uses all).
        """

    def exact(self, hidden: Tensor, targets: Tensor, chunk_bytes: int) -> Tensor:
        """-ln p of each target under probabilities that sum to 1 over the vocabulary, [N]."""
        return self._whole(hidden, targets, self.model.softmax_bias, chunk_bytes)

    def _how(self, op: str) -> dict[str, Any]:
        return {"precision": self.model.precision, "backend": ops.backend_for(op, self.model.backend)}

    def _whole(self, hidden: Tensor, targets: Tensor, bias: Tensor, chunk_bytes: int) -> Tensor:
        how = self._how("full_softmax")
        return ops.full_softmax(hidden, targets, self.model.softmax_weight, bias, chunk_bytes=chunk_bytes, **how)

    def _counts(self) -> Tensor:
        counts = self.model.counts
        assert counts is not None  # LanguageModel has asked for them
        return counts

    def _kept(self, device: torch.device, make: Callable[[Tensor], Any]) -> Any:
        """What `make` makes of the counts, [V] on the CPU; made once."""
        if device not in self._made:
            self._made[device] = make(self._counts().cpu())
        return self._made[device]


class SampledSoftmax(Loss):
    """The softmax over the target and words drawn by the log-uniform law (`ops.sampled_softmax`), as bilm-tf trains."""

    name = "sampled_softmax"
    called = ("log_uniform_sample", "sampled_softmax", "full_softmax")
    draws = True
    perplexity = "sampled_perplexity"

    def draw(self, samples: int, seed: int, offset: int, device: torch.device) -> tuple[Tensor, Tensor]:
        backend = ops.backend_for("log_uniform_sample", self.model.backend)
        words = len(self.model.softmax_bias)
        return ops.log_uniform_sample(samples, words, seed=seed, offset=offset, device=device, backend=backend)

    def training(
        self, hidden: Tensor, targets: Tensor, drawn: Any, *, negatives: float | None = None, sparse: bool = True
    ) -> Tensor:
        weight, bias = self.model.softmax_weight, self.model.softmax_bias
        return ops.sampled_softmax(hidden, targets, weight, bias, *drawn, sparse=sparse, **self._how("sampled_softmax"))


class NegativeSampling(Loss):
    """word2vec's negative sampling (`ops.negative_sampling`), noise from counts^0.75.

    Its scores tend to ln(p / P) - ln K, P being the noise's law (Levy and Goldberg 2014), and are normalised by
    nothing. For a perplexity ln P is added to them and a softmax taken over the whole vocabulary. The bias begins at
    -ln K, where the model says what the noise does: from 0 the K words of noise would drown the target for long.
    """

    name = "negative_sampling"
    called = ("alias_sample", "negative_sampling", "full_softmax")
    wants_counts = draws = True
    perplexity = None
    said = (
        "negative sampling trains scores that are no probabilities: here ln of the noise's law is added to them, and "
        "the sum normalised over the whole vocabulary"
    )

    @classmethod
    def bias(cls, samples: int, negatives: float | None) -> float:
        return -math.log(negatives or samples)

    def draw(self, samples: int, seed: int, offset: int, device: torch.device) -> Tensor:
        backend = ops.backend_for("alias_sample", self.model.backend)
        table = self._kept(torch.device("cpu"), lambda counts: ops.alias_table(counts, power=NOISE_POWER))
        return ops.alias_sample(samples, table, seed=seed, offset=offset, device=device, backend=backend)

    def training(
        self, hidden: Tensor, targets: Tensor, drawn: Any, *, negatives: float | None = None, sparse: bool = True
    ) -> Tensor:
        weight, bias = self.model.softmax_weight, self.model.softmax_bias
        how = self._how("negative_sampling")
        return ops.negative_sampling(hidden, targets, weight, bias, drawn, negatives=negatives, sparse=sparse, **how)

    def exact(self, hidden: Tensor, targets: Tensor, chunk_bytes: int) -> Tensor:
        bias = self.model.softmax_bias
        return self._whole(hidden, targets, bias + log_noise(self._counts().to(bias)), chunk_bytes)


class HierarchicalSoftmax(Loss):
    """The path to the target through Huffman's tree of the counts (`ops.hierarchical_softmax`); exact as it is."""

    name = "hierarchical_softmax"
    called = ("hierarchical_softmax",)
    wants_counts = True
    said = "hierarchical softmax: exact, by the model's own tree, under which the words' probabilities sum to 1"

    @classmethod
    def rows(cls, words: int) -> int:
        return words - 1

    @classmethod
    def touched(cls, words: int, samples: int, positions: int) -> int:
        return min(cls.rows(words), math.ceil(2 * positions * cls.products(words, samples)))

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        return math.log2(words)

    @property
    def tree(self) -> ops.HuffmanTree:
        """The tree, on the device of the model."""
        device = self.model.softmax_bias.device
        made: ops.HuffmanTree = self._kept(device, lambda counts: ops.huffman_tree(counts.long()).to(device))
        return made

    def training(
        self, hidden: Tensor, targets: Tensor, drawn: Any, *, negatives: float | None = None, sparse: bool = True
    ) -> Tensor:
        weight, bias = self.model.softmax_weight, self.model.softmax_bias
        how = self._how("hierarchical_softmax")
        return ops.hierarchical_softmax(hidden, targets, weight, bias, self.tree, sparse=sparse, **how)

    def exact(self, hidden: Tensor, targets: Tensor, chunk_bytes: int) -> Tensor:
        at_once = max(1, chunk_bytes // (self.tree.longest * hidden.shape[1] * hidden.element_size()))
        pairs = zip(hidden.split(at_once), targets.split(at_once), strict=True)
        return torch.cat([self.training(some, words, None, sparse=False) for some, words in pairs])


class FullSoftmax(Loss):
    """The softmax over the whole vocabulary, in chunks (`ops.full_softmax`)."""

    name = "full_softmax"
    called = ("full_softmax",)

    @classmethod
    def touched(cls, words: int, samples: int, positions: int) -> int:
        return words

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        return words

    def training(
        self, hidden: Tensor, targets: Tensor, drawn: Any, *, negatives: float | None = None, sparse: bool = True
    ) -> Tensor:
        weight, bias = self.model.softmax_weight, self.model.softmax_bias
        return ops.full_softmax(hidden, targets, weight, bias, **self._how("full_softmax"))


BY_NAME: dict[str, type[Loss]] = {
    loss.name: loss for loss in (SampledSoftmax, NegativeSampling, HierarchicalSoftmax, FullSoftmax)
}
