"""One ELMo representation per word, optionally projected."""

import os
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.modules.elmo import Elmo


class ElmoTokenEmbedder(nn.Module):
    """Elmo with one output representation, and a linear layer on it if projection_dim is given.

    Args:
        options_file, weight_file, do_layer_norm, dropout, requires_grad, vocab_to_cache, scalar_mix_parameters: as in
            Elmo.
        projection_dim: width of the linear layer's output; None: no such layer.
        settings: the other keywords of Elmo.

    Raises: ElmoFastError, CheckpointError.

    Source: AllenNLP's `ElmoTokenEmbedder` (0.9 and 1.0 to 2.x share this order).
    """

    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: list[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            **settings,
        )
        self.output_dim = projection_dim or self._elmo.get_output_dim()
        self._projection = nn.Linear(self._elmo.get_output_dim(), projection_dim) if projection_dim else None

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """The representations [B, ..., T, output_dim].

        Args:
            elmo_tokens: character ids from batch_to_ids, [B, ..., T, C] int64.
            word_inputs: indices into vocab_to_cache, [B, ..., T]; see BiLM.
        """
        representation = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return representation if self._projection is None else self._projection(representation)
