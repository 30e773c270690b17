"""AllenNLP's names for the conversion of words to character ids; the ids come from elmo_fast.text."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.text import BOS, BOS_WORD, BOW, EOS, EOS_WORD, EOW, MAX_CHARACTERS, PAD, words_to_ids


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
        """The 50 ids of a word."""
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
        """Does nothing: characters need no vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """The indices of an empty list of tokens."""
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Iterable[Any], vocabulary: Any = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """{index_name: one list of 50 ids per token}."""
        not_a_string(tokens, "tokens", "a list of tokens")
        return {index_name: self._mapper._ids([_text(token) for token in tokens])}

    def get_padding_lengths(self, indexed_tokens: Any) -> dict[str, int]:
        """The number of tokens under each name; empty for the ids of a single token (0.9)."""
        if not isinstance(indexed_tokens, Mapping):
            return {}
        return {name: max(len(rows), self._token_min_padding_length) for name, rows in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, list[list[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """{name: ids [padding_lengths[name], 50] int64}, truncated or padded with rows of zeros (1.0 to 2.10)."""
        return self.as_padded_tensor(tokens, padding_lengths, {})

    def as_padded_tensor(
        self, tokens: Mapping[str, list[list[int]]], desired_num_tokens: Mapping[str, int], padding_lengths: Any = None
    ) -> dict[str, Tensor]:
        """{name: ids [desired_num_tokens[name], 50] int64}, truncated or padded with rows of zeros (0.9)."""
        padded = self.pad_token_sequence(tokens, desired_num_tokens)
        return {
            name: torch.tensor(rows, dtype=torch.int64).reshape(-1, MAX_CHARACTERS) for name, rows in padded.items()
        }

    def pad_token_sequence(
        self, tokens: Mapping[str, list[list[int]]], desired_num_tokens: Mapping[str, int], padding_lengths: Any = None
    ) -> dict[str, list[list[int]]]:
        """The lists of as_padded_tensor before conversion to tensors (0.8)."""
        padded = {}
        for name, rows in tokens.items():
            wanted = desired_num_tokens[name]
            padded[name] = rows[:wanted] + [[0] * MAX_CHARACTERS for _ in range(wanted - len(rows))]
        return padded


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if text is None:
        raise ElmoFastError(f"tokens must be strings or have an attribute text; got {token!r:.60}")
    return text
