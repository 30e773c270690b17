"""A tagger: a BiLSTM over the features of the words, then a softmax or a CRF over the tags."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.tasks.bilstm import BiLSTM
from elmo_fast.tasks.crf import CRF
from elmo_fast.tasks.dropout import dropout
from elmo_fast.tasks.labels import UNSEEN


class Tagger(nn.Module):
    """One tag per word.

    Args:
        width: W, of the words' features.
        labels: K, the number of tags.
        hidden, lstm_layers: the BiLSTM's H and layers; 0 layers: linear on the features.
        output_width: of features that join the BiLSTM's output; 0: none.
        dropout: on the features, between layers and on the output.
        crf: whether the tags of a sentence are scored jointly (CRF) or word by word (softmax).
        precision, backend: as in elmo_fast.ops.projected_lstm.

    Source: Peters et al. 2018, section 3.3 (ELMo at the input, and at the output of the task's RNN).
    """

    def __init__(
        self,
        width: int,
        labels: int,
        *,
        hidden: int,
        lstm_layers: int,
        output_width: int = 0,
        dropout: float = 0.0,
        crf: bool = False,
        precision: str = "float32",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lstm = BiLSTM(width, hidden, lstm_layers, dropout=dropout, precision=precision, backend=backend)
        self.linear = nn.Linear(self.lstm.output_size + output_width, labels)
        self.crf = CRF(labels) if crf else None

    def forward(self, features: Tensor, lengths: Tensor, at_output: Tensor | None = None) -> Tensor:
        """The score of every tag at every word, [B, T, K].

        Args:
            features: [B, T, W].
            lengths: [B] int64, each 1..T.
            at_output: features that join the BiLSTM's output, [B, T, output_width].
        """
        x = self.lstm(dropout(features, self.dropout, self.training), lengths)
        x = dropout(x, self.dropout, self.training)
        return self.linear(x if at_output is None else torch.cat([x, at_output], dim=-1))

    def loss(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """-log p of the tags per word, a mean over the batch, [].

        Args:
            scores: as `forward` returns them.
            labels: [B, T] int64; UNSEEN past each length, and for a tag that did not occur in training: the softmax's
                loss ignores such a word, the CRF's loss such a sentence.
            lengths: [B] int64.
        """
        if self.crf is None:
            total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=UNSEEN, reduction="sum")
            return total / (labels != UNSEEN).sum().clamp(min=1)
        known = (labels != UNSEEN).sum(1) == lengths
        if not known.any():
            return scores.sum() * 0
        lengths = lengths[known]
        return -self.crf.log_likelihood(scores[known], labels[known], lengths).sum() / lengths.sum()

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """The best tags of each sentence, B lists as long as the sentences."""
        best = scores.argmax(dim=-1) if self.crf is None else self.crf.decode(scores, lengths)[0]
        return [row[:length] for row, length in zip(best.tolist(), lengths.tolist(), strict=True)]
