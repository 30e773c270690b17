"""What the losses over a vocabulary have in common: a table of rows and biases, dense or with gradients as rows."""

from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings


class OutputTable(nn.Module):
    """The table of a loss over V words, drawn from N(0, 1/D), its bias 0.

    Args:
        rows: of the table.
        embedding_dim: D.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        precision, backend: as the ops'.

    Attributes:
        softmax_w: [rows, D], softmax_b: [rows].
    """

    softmax_w: nn.Embedding | nn.Parameter
    softmax_b: nn.Embedding | nn.Parameter

    def __init__(self, rows: int, embedding_dim: int, sparse: bool, precision: str, backend: str) -> None:
        super().__init__()
        check_settings(precision, backend)
        self.sparse, self.precision, self.backend = sparse, precision, backend
        table, bias = torch.randn(rows, embedding_dim) / embedding_dim**0.5, torch.zeros(rows)
        if sparse:
            self.softmax_w = nn.Embedding.from_pretrained(table, freeze=False, sparse=True)
            self.softmax_b = nn.Embedding.from_pretrained(bias[:, None], freeze=False, sparse=True)
        else:
            self.softmax_w, self.softmax_b = nn.Parameter(table), nn.Parameter(bias)

    def _tables(self) -> tuple[Tensor, Tensor]:
        w = self.softmax_w.weight if isinstance(self.softmax_w, nn.Embedding) else self.softmax_w
        b = self.softmax_b.weight.squeeze(1) if isinstance(self.softmax_b, nn.Embedding) else self.softmax_b
        return w, b

    def _how(self, op: str) -> dict[str, Any]:
        return {"precision": self.precision, "backend": ops.backend_for(op, self.backend)}


def checked_counts(counts: Tensor, num_words: int) -> Tensor:
    """A copy of the counts [V] as int64 on the CPU. Raises ElmoFastError unless there are V of them, 0 or more."""
    held = torch.as_tensor(counts).detach().to("cpu", torch.int64, copy=True)
    if held.shape != (num_words,) or not held.numel() or int(held.min()) < 0:
        raise ElmoFastError(
            f"counts must say how often each of the num_words={num_words} words occurs, [V], 0 or more; got shape "
            f"{tuple(held.shape)}" + (f" from {int(held.min())} up" if held.numel() else "")
        )
    return held
