"""A classifier of sentences: a BiLSTM over the features of the words, pooled over the words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.bilstm import BiLSTM
from elmo_fast.tasks.dropout import dropout
from elmo_fast.tasks.labels import UNSEEN

POOLINGS = ("max", "mean", "both")


class Classifier(nn.Module):
    """One label per sentence.

    Args:
        pooling: of the BiLSTM's output over the words: "max", "mean", or "both", concatenated.
        width, labels, hidden, lstm_layers, output_width, dropout, precision, backend: as in Tagger.

    Raises: ElmoFastError.
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
        pooling: str = "both",
        precision: str = "float32",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ElmoFastError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}")
        self.dropout, self.pooling = dropout, pooling
        self.lstm = BiLSTM(width, hidden, lstm_layers, dropout=dropout, precision=precision, backend=backend)
        size = self.lstm.output_size + output_width
        self.linear = nn.Linear(2 * size if pooling == "both" else size, labels)

    def forward(self, features: Tensor, lengths: Tensor, at_output: Tensor | None = None) -> Tensor:
        """The score of every label for every sentence, [B, K]; arguments as Tagger.forward's."""
        x = self.lstm(dropout(features, self.dropout, self.training), lengths)
        pooled = pool(x if at_output is None else torch.cat([x, at_output], dim=-1), lengths, self.pooling)
        return self.linear(dropout(pooled, self.dropout, self.training))

    def loss(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """-log p of the label, a mean over the batch, []; labels: [B] int64; UNSEEN is ignored."""
        total = F.cross_entropy(scores, labels, ignore_index=UNSEEN, reduction="sum")
        return total / (labels != UNSEEN).sum().clamp(min=1)

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """The best label of each sentence, B lists of one."""
        return [[best] for best in scores.argmax(dim=-1).tolist()]


def pool(x: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """The max, mean, or both of x [B, T, W] over each row's words: [B, W], for "both" [B, 2W]."""
    within = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
    parts = []
    if pooling != "mean":
        parts.append(x.masked_fill(~within, float("-inf")).amax(dim=1))
    if pooling != "max":
        parts.append(torch.where(within, x, 0).sum(dim=1) / lengths[:, None])
    return torch.cat(parts, dim=-1)
