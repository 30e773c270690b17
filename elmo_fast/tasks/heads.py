"""Heads: a BiLSTM over the features of the words, then a tag for each word, or one label for a sentence or a pair."""

from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.errors import check_choice
from elmo_fast.modules.projected_lstm import ProjectedLSTM, run_directions
from elmo_fast.op_choices import Backend, Precision
from elmo_fast.tasks.config import Pooling
from elmo_fast.tasks.crf import CRF
from elmo_fast.tasks.data import UNSEEN
from elmo_fast.tasks.features import dropout


class BiLSTM(nn.Module):
    """Layers of two LSTMs each, one per direction, without projections and clips.

    Each layer reads both directions of the one below.

    Args:
        input_size: I.
        hidden: H, cells per layer and direction.
        layers: 0 gives the input back.
        dropout: chance of dropping a number between two layers, while training.
        precision, backend: as elmo_fast.ops.projected_lstm's.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int,
        layers: int,
        *,
        dropout: float = 0.0,
        precision: Precision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.dropout = dropout
        settings: dict[str, Any] = {"project": False, "precision": precision, "backend": backend}
        self.layers = nn.ModuleList(
            nn.ModuleList(
                ProjectedLSTM(2 * hidden if layer else input_size, hidden, hidden, forward, **settings)
                for forward in (True, False)
            )
            for layer in range(layers)
        )
        self.output_size = 2 * hidden if layers else input_size

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Run over a batch of padded sentences.

        Args:
            inputs: [B, T, I].
            lengths: [B] int64.

        Returns: [B, T, output_size], 0 past each length (with layers = 0: the inputs).
        """
        x = inputs
        for number, pair in enumerate(self.layers):
            x = dropout(x, self.dropout if number else 0, self.training)
            outputs, _ = run_directions(list(pair), [x, x], lengths, None, reverse=(False, True))  # type: ignore[call-overload]
            x = torch.cat([outputs[0], outputs[1]], dim=-1)
        return x


class _Head(nn.Module):
    """Features, a BiLSTM, and a linear layer of `inputs` times the BiLSTM's width."""

    def __init__(
        self,
        width: int,
        labels: int,
        *,
        hidden: int,
        lstm_layers: int,
        output_width: int = 0,
        dropout: float = 0.0,
        inputs: int = 1,
        **op_choices: Any,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lstm = BiLSTM(width, hidden, lstm_layers, dropout=dropout, **op_choices)
        self.linear = nn.Linear(inputs * (self.lstm.output_size + output_width), labels)

    def loss(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """-log p of the labels ([B] int64, of a tagger [B, T]), a mean over those that are not UNSEEN, []."""
        total = F.cross_entropy(scores.flatten(0, -2), labels.flatten(), ignore_index=UNSEEN, reduction="sum")
        return total / (labels != UNSEEN).sum().clamp(min=1)


class Tagger(_Head):
    """One tag per word.

    Args:
        width: W, of the words' features.
        labels: K, the number of tags.
        crf: whether the tags of a sentence are scored jointly (CRF) or word by word (softmax).
        hidden, lstm_layers: the BiLSTM's H and layers; 0 layers: linear on the features.
        output_width: of features that join the BiLSTM's output; 0: none.
        dropout: on the features, between layers and on the output.
        precision, backend: as in elmo_fast.ops.projected_lstm.

    Source: Peters et al. 2018, section 3.3 (ELMo at the input, and at the output of the task's RNN).
    """

    def __init__(self, width: int, labels: int, *, crf: bool = False, **settings: Any) -> None:
        super().__init__(width, labels, **settings)
        self.crf = CRF(labels) if crf else None

    def forward(self, features: Tensor, lengths: Tensor, at_output: Tensor | None = None) -> Tensor:
        """Return the score of every tag at every word, [B, T, K].

        Args:
            features: [B, T, W].
            lengths: [B] int64, each 1..T.
            at_output: features that join the BiLSTM's output, [B, T, output_width].
        """
        x = self.lstm(dropout(features, self.dropout, self.training), lengths)
        x = dropout(x, self.dropout, self.training)
        return self.linear(x if at_output is None else torch.cat([x, at_output], dim=-1))

    def loss(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """-log p of the tags per word, []: the softmax ignores a word whose tag is UNSEEN, the CRF its sentence.

        Args:
            scores: as `forward` returns them.
            labels: [B, T] int64, UNSEEN past each length and for a tag that did not occur in training.
            lengths: [B] int64.
        """
        if self.crf is None:
            return super().loss(scores, labels, lengths)
        known = (labels != UNSEEN).sum(1) == lengths
        lengths = lengths[known]
        total = self.crf.log_likelihood(scores[known], labels[known], lengths).sum()
        return -total / lengths.sum().clamp(min=1)

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """Return the best tags of each sentence, B lists as long as the sentences."""
        best = scores.argmax(dim=-1) if self.crf is None else self.crf.decode(scores, lengths)[0]
        return [row[:length] for row, length in zip(best.tolist(), lengths.tolist(), strict=True)]

    def probabilities(self, scores: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the probability of every tag at every word, B tensors [length, K]; of a CRF the marginal one."""
        all_words = scores.softmax(dim=-1) if self.crf is None else self.crf.marginals(scores, lengths)
        return [row[:length] for row, length in zip(all_words, lengths.tolist(), strict=True)]


class Classifier(_Head):
    """One label per sentence, or per pair of texts, by [u; v; |u - v|; u * v] of their pooled vectors u and v.

    Args:
        pooling: of the BiLSTM's output over the words: "max", "mean", or "both", concatenated.
        pairs: whether the two texts of each pair follow one another in a batch, B / 2 pairs.
        width, labels, settings: as in Tagger, without crf.

    Raises: ElmoFastError.

    Source: of pairs: Conneau et al. 2017, section 3.1 (sentence vectors from natural language inference).
    """

    def __init__(self, width: int, labels: int, *, pooling: str = "both", pairs: bool = False, **settings: Any) -> None:
        check_choice("pooling", pooling, get_args(Pooling))
        super().__init__(width, labels, inputs=(2 if pooling == "both" else 1) * (4 if pairs else 1), **settings)
        self.pooling, self.pairs = pooling, pairs

    def forward(self, features: Tensor, lengths: Tensor, at_output: Tensor | None = None) -> Tensor:
        """Return the score of every label for every sentence or pair, [B, K]; arguments as Tagger.forward's."""
        x = self.lstm(dropout(features, self.dropout, self.training), lengths)
        pooled = pool(x if at_output is None else torch.cat([x, at_output], dim=-1), lengths, self.pooling)
        if self.pairs:
            u, v = pooled[0::2], pooled[1::2]
            pooled = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        return self.linear(dropout(pooled, self.dropout, self.training))

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """Return the best label of each sentence, B lists of one."""
        return [[best] for best in scores.argmax(dim=-1).tolist()]

    def probabilities(self, scores: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the probability of every label for every sentence, B tensors [K]."""
        return list(scores.softmax(dim=-1))


def pool(x: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Return the max, mean, or both of x [B, T, W] over each row's words: [B, W], for "both" [B, 2W]."""
    within = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
    parts = []
    if pooling != "mean":
        parts.append(x.masked_fill(~within, float("-inf")).amax(dim=1))
    if pooling != "max":
        parts.append(torch.where(within, x, 0).sum(dim=1) / lengths[:, None])
    return torch.cat(parts, dim=-1)
