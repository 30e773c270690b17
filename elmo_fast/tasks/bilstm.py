"""A stack of plain bidirectional LSTM layers, on the kernels of the projected LSTM."""

from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast.modules.projected_lstm import ProjectedLSTM, run_beside
from elmo_fast.op_choices import Backend, Precision
from elmo_fast.tasks.dropout import dropout


class BiLSTM(nn.Module):
    """Layers of two LSTMs each, one per direction, without projections and clips; each layer reads both directions of
    the one below.

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
        """Runs over a batch of padded sentences.

        Args:
            inputs: [B, T, I].
            lengths: [B] int64.

        Returns: [B, T, output_size], 0 past each length (with layers = 0: the inputs).
        """
        x = inputs
        for number, pair in enumerate(self.layers):
            if number:
                x = dropout(x, self.dropout, self.training)
            outputs, _ = run_beside(list(pair), [x, x], lengths, None, reverse=(False, True))  # type: ignore[call-overload]
            x = torch.cat([outputs[0], outputs[1]], dim=-1)
        return x
