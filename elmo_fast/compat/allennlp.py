"""AllenNLP's ELMo under its old names: change the import, keep the code.

    from elmo_fast.compat.allennlp import Elmo, batch_to_ids            # allennlp.modules.elmo
    from elmo_fast.compat.allennlp import ElmoEmbedder                  # allennlp.commands.elmo (0.9)
    from elmo_fast.compat.allennlp import ElmoTokenEmbedder             # allennlp.modules.token_embedders

Names, argument order, defaults, outputs and state_dict keys are those of AllenNLP 0.9 to 2.10. There are deliberate
differences: masks are bool, as since 1.0; models without skip connections or projections, and folders of other formats,
load too; the mask of cached words comes from their number, not from the signs of their vectors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.compat._allennlp_encoder_base import (
    _EncoderBase,
    get_lengths_from_binary_sequence_mask,
    sort_batch_by_length,
)
from elmo_fast.compat._allennlp_indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer
from elmo_fast.errors import ElmoFastError as ConfigurationError
from elmo_fast.modules import BiLM as _ElmoBiLm
from elmo_fast.modules import CharacterEncoder as _ElmoCharacterEncoder
from elmo_fast.modules import Elmo as _Elmo
from elmo_fast.modules import ElmoEmbedder as _ElmoEmbedder
from elmo_fast.modules import (
    ElmoLstm,
    SampledSoftmaxLoss,
    ScalarMix,
    add_sentence_boundary_token_ids,
    remove_sentence_boundaries,
)
from elmo_fast.modules import ElmoTokenEmbedder as _ElmoTokenEmbedder
from elmo_fast.modules import ProjectedLSTM as LstmCellWithProjection
from elmo_fast.modules.losses.sampled_softmax import log_uniform_choice as _choice
from elmo_fast.modules.sentence_vectors import BATCH_SIZE
from elmo_fast.text import batch_to_ids

__all__ = [
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "LstmCellWithProjection",
    "SampledSoftmaxLoss",
    "ScalarMix",
    "SoftmaxLoss",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "_EncoderBase",
    "_choice",
    "add_sentence_boundary_token_ids",
    "batch_to_ids",
    "empty_embedding",
    "get_lengths_from_binary_sequence_mask",
    "remove_sentence_boundaries",
    "sort_batch_by_length",
]


class Elmo(_Elmo):
    """elmo_fast.Elmo with AllenNLP's `from_params`."""

    @classmethod
    def from_params(cls, params: Any, **extras: Any) -> "Elmo":
        """An Elmo from AllenNLP's Params or a dictionary of its arguments."""
        return _constructed(cls, params, extras)


class ElmoTokenEmbedder(_ElmoTokenEmbedder):
    """elmo_fast.ElmoTokenEmbedder with AllenNLP's `from_params`."""

    @classmethod
    def from_params(cls, vocab: Any = None, params: Any = None, **extras: Any) -> "ElmoTokenEmbedder":
        """An embedder from AllenNLP's Params or a dictionary of its arguments.

        vocab: an AllenNLP vocabulary, needed with "namespace_to_cache" (its words become vocab_to_cache).
        """
        if params is None:  # AllenNLP 1.0 put params first
            vocab, params = extras.pop("vocab", None), vocab
        return _constructed(cls, params, extras, vocab)


def _constructed(made: Any, params: Any, extras: Mapping[str, Any], vocab: Any = None) -> Any:
    """`made(**params, **extras)`; params is a dictionary or anything with `pop` and `keys`; the latter is emptied.

    Raises: ElmoFastError for "namespace_to_cache" without a vocab; TypeError for a key that `made` has no argument for.
    """
    if isinstance(params, dict):
        params = dict(params)
    values = {**extras, **{key: params.pop(key) for key in list(params.keys())}}
    values.pop("type", None)
    namespace = values.pop("namespace_to_cache", None)
    if namespace is not None:
        if vocab is None:
            raise ConfigurationError("namespace_to_cache needs the vocab whose words it caches; got vocab=None")
        values["vocab_to_cache"] = list(vocab.get_token_to_index_vocabulary(namespace).keys())
    return made(**values)


def empty_embedding() -> np.ndarray[Any, Any]:
    """AllenNLP's result for an empty sentence, for a model of any size."""
    return np.zeros((3, 0, 1024))


class ElmoEmbedder(_ElmoEmbedder):
    """elmo_fast.ElmoEmbedder, but an empty sentence gives (3, 0, 1024) for a model of any size, as in AllenNLP."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.indexer = ELMoTokenCharactersIndexer()

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray[Any, Any]]:
        """As elmo_fast.ElmoEmbedder.embed_batch, but an empty sentence gives (3, 0, 1024)."""
        return list(map(_or_empty, super().embed_batch(batch)))

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int | None = BATCH_SIZE
    ) -> Iterator[np.ndarray[Any, Any]]:
        """As elmo_fast.ElmoEmbedder.embed_sentences, but an empty sentence gives (3, 0, 1024)."""
        return map(_or_empty, super().embed_sentences(sentences, batch_size))


def _or_empty(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return vectors if vectors.shape[1] else empty_embedding()


class SoftmaxLoss(nn.Module):
    """The sum of the cross entropies over all V words; weights [D, V], as in AllenNLP.

    num_words: V.
    embedding_dim: D.
    """

    def __init__(self, num_words: int, embedding_dim: int) -> None:
        super().__init__()
        self.softmax_w = nn.Parameter(torch.randn(embedding_dim, num_words) / embedding_dim**0.5)
        self.softmax_b = nn.Parameter(torch.zeros(num_words))

    def forward(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """embeddings: [N, D]; targets: [N] whole numbers; returns the sum, in nats."""
        logits = embeddings @ self.softmax_w + self.softmax_b
        return F.nll_loss(F.log_softmax(logits, dim=-1), targets.long(), reduction="sum")
