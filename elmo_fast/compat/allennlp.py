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

from elmo_fast.embed.embedder import ElmoEmbedder as _ElmoEmbedder
from elmo_fast.embed.sentence_vectors import BATCH_SIZE
from elmo_fast.errors import ElmoFastError, not_a_string, quoted
from elmo_fast.errors import ElmoFastError as ConfigurationError
from elmo_fast.modules.bilm import BiLM as _ElmoBiLm
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmo_fast.modules.character_encoder import CharacterEncoder as _ElmoCharacterEncoder
from elmo_fast.modules.elmo import Elmo as _Elmo
from elmo_fast.modules.elmo import ElmoTokenEmbedder as _ElmoTokenEmbedder
from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.modules.losses import SampledSoftmaxLoss
from elmo_fast.modules.losses import log_uniform_choice as _choice
from elmo_fast.modules.projected_lstm import ProjectedLSTM as LstmCellWithProjection
from elmo_fast.modules.scalar_mix import ScalarMix
from elmo_fast.text import batch_to_ids, words_to_ids
from elmo_fast.text.characters import BOS, BOS_WORD, BOW, EOS, EOS_WORD, EOW, MAX_CHARACTERS, PAD


def get_lengths_from_binary_sequence_mask(mask: Tensor) -> Tensor:
    """Count the true positions of each row, [B] int64."""
    return mask.long().sum(dim=-1)


def sort_batch_by_length(tensor: Tensor, sequence_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (tensor, lengths) sorted by decreasing length, the indices that undo and that make the order, [B] each."""
    lengths, order = sequence_lengths.sort(descending=True, stable=True)
    return tensor.index_select(0, order), lengths, order.argsort(), order


class ELMoCharacterMapper:
    """One word to its 50 character ids, each + 1 (0 is the padding).

    tokens_to_add: words with a character id of their own (below 256) instead of their spelling.
    """

    max_word_length = MAX_CHARACTERS
    beginning_of_sentence_character, end_of_sentence_character = BOS, EOS
    beginning_of_word_character, end_of_word_character = BOW, EOW
    padding_character = PAD
    beginning_of_sentence_characters = words_to_ids([BOS_WORD])[0].tolist()
    end_of_sentence_characters = words_to_ids([EOS_WORD])[0].tolist()
    bos_token, eos_token = BOS_WORD, EOS_WORD

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def _ids(self, words: list[str]) -> list[list[int]]:
        rows: list[list[int]] = (words_to_ids(words) + 1).tolist()
        for row, word in zip(rows, words, strict=True):
            if word in self.tokens_to_add:
                row[:] = [BOW + 1, self.tokens_to_add[word] + 1, EOW + 1] + [PAD + 1] * (MAX_CHARACTERS - 3)
        return rows

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """Return the 50 ids of a word."""
        return self._ids([word])[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and self.tokens_to_add == other.tokens_to_add

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.tokens_to_add.items())))


class ELMoTokenCharactersIndexer:
    """AllenNLP's token indexer "elmo_characters", with the methods of 0.9 and of 1.0 to 2.10.

    Tokens are strings or objects with a `text`.

    namespace: stored but unused, as in AllenNLP.
    tokens_to_add: as in ELMoCharacterMapper.
    token_min_padding_length: kept for AllenNLP's data loaders.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace, self._token_min_padding_length = namespace, token_min_padding_length
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def count_vocab_items(self, token: Any, counter: Any) -> None:
        """Do nothing: characters need no vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """Return the indices of an empty list of tokens."""
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Iterable[Any], vocabulary: Any = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """Return {index_name: one list of 50 ids per token}."""
        not_a_string(tokens, "tokens", "a list of tokens")
        return {index_name: self._mapper._ids([_text(token) for token in tokens])}

    def get_padding_lengths(self, indexed_tokens: Any) -> dict[str, int]:
        """Return the number of tokens under each name; empty for the ids of a single token (0.9)."""
        if not isinstance(indexed_tokens, Mapping):
            return {}
        return {name: max(len(rows), self._token_min_padding_length) for name, rows in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, list[list[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return {name: ids [padding_lengths[name], 50] int64}, truncated or padded with zeros (1.0 to 2.10)."""
        return self.as_padded_tensor(tokens, padding_lengths, {})

    def as_padded_tensor(
        self, tokens: Mapping[str, list[list[int]]], desired_num_tokens: Mapping[str, int], padding_lengths: Any = None
    ) -> dict[str, Tensor]:
        """Return {name: ids [desired_num_tokens[name], 50] int64}, truncated or padded with rows of zeros (0.9)."""
        padded = {}
        for name, rows in tokens.items():
            length = desired_num_tokens[name]
            filled = rows[:length] + [[0] * MAX_CHARACTERS for _ in range(length - len(rows))]
            padded[name] = torch.tensor(filled, dtype=torch.int64, device="cpu").reshape(-1, MAX_CHARACTERS)
        return padded


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if text is None:
        raise ElmoFastError(f"tokens must be strings or have an attribute text; got {quoted(token)}")
    return text


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
        """Create an Elmo from AllenNLP's Params or a dictionary of its arguments."""
        return _constructed(cls, params, extras)


class ElmoTokenEmbedder(_ElmoTokenEmbedder):
    """elmo_fast.ElmoTokenEmbedder with AllenNLP's `from_params`."""

    @classmethod
    def from_params(cls, vocab: Any = None, params: Any = None, **extras: Any) -> "ElmoTokenEmbedder":
        """Create an embedder from AllenNLP's Params or a dictionary of its arguments.

        vocab: an AllenNLP vocabulary, needed with "namespace_to_cache" (its words become vocab_to_cache).
        """
        if params is None:  # AllenNLP 1.0 put params first
            vocab, params = extras.pop("vocab", None), vocab
        return _constructed(cls, params, extras, vocab)


def _constructed(constructed: Any, params: Any, extras: Mapping[str, Any], vocab: Any = None) -> Any:
    """Call `constructed(**params, **extras)`.

    params: a dictionary, or anything with `pop` and `keys`, which is emptied. Raises: ElmoFastError for
    "namespace_to_cache" without a vocab; TypeError for a key that `constructed` has no argument for.
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
    return constructed(**values)


def empty_embedding() -> np.ndarray[Any, Any]:
    """Return AllenNLP's result for an empty sentence, for a model of any size."""
    return np.zeros((3, 0, 1024))


class ElmoEmbedder(_ElmoEmbedder):
    """elmo_fast.ElmoEmbedder, but an empty sentence gives (3, 0, 1024) for a model of any size, as in AllenNLP."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.indexer = ELMoTokenCharactersIndexer()

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int | None = BATCH_SIZE
    ) -> Iterator[np.ndarray[Any, Any]]:
        """As elmo_fast.ElmoEmbedder.embed_sentences, but an empty sentence gives (3, 0, 1024)."""
        return super().embed_sentences(sentences, batch_size)

    def _vectors(self, sentences: Iterable[Sequence[str]], batch_size: int | None) -> Iterator[np.ndarray[Any, Any]]:
        for vectors in super()._vectors(sentences, batch_size):
            yield vectors if vectors.shape[1] else empty_embedding()


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
