"""Encodes a word by the characters and words of lexicons to its context-free vector."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import unset
from elmo_fast.modules.character_encoder import CharacterEncoder
from elmo_fast.text import LexiconSpelling, Spelling


class LexiconEncoder(CharacterEncoder):
    """Context-free word vectors as ELMoForManyLangs': a projection of a word's own vector, beside its characters'.

        vector = [words[w], highways(char_cnn(c))] W^T + b

    One of the two parts may be absent. `spelling` makes the ids: S = C characters, then w.

    Args:
        As CharacterEncoder's; the options have a lexicon.

    Raises: ElmoFastError, CheckpointError.

    Source: Che et al. 2018, "Towards Better UD Parsing"; ELMoForManyLangs, modules/token_embedder.py.
    """

    _word_vectors: nn.Parameter | None

    def _read_options(self, options: ElmoOptions) -> Spelling:
        lexicon, cnn = options.lexicon, options.char_cnn
        if lexicon is None:
            raise ElmoFastError("options must be of a model of lexicons (lexicon); got another")
        self._reads_characters = cnn is not None
        if cnn is not None:
            self._characters = cnn
        longest = lexicon.longest_word if cnn is None else cnn.max_characters_per_token - 2
        return LexiconSpelling(lexicon.characters, lexicon.words, longest)

    def _make_parameters(self, options: ElmoOptions, project: bool) -> None:
        if self._reads_characters:
            super()._make_parameters(options, project)
        else:
            self._projection = unset(nn.Linear, options.n_features, self.output_dim) if project else None
        assert options.lexicon is not None
        sizes = (len(options.lexicon.words) + 1, options.lexicon.word_dim)
        self._word_vectors = nn.Parameter(torch.zeros(sizes)) if options.lexicon.words else None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initializes the characters' parameters as in bilm-tf, vectors of words U(-1, 1)."""
        if self._reads_characters:
            super().reset_parameters()
        elif self._projection is not None:
            self._projection.reset_parameters()
        if self._word_vectors is not None:
            self._word_vectors[1:].uniform_(-1, 1)
        self._cache.clear()

    @property
    def max_characters_per_token(self) -> int:
        """C, the slots of a word's characters; 0 without."""
        return self.spelling.slots - 1

    def _encode(self, rows: Tensor, count: Tensor | None = None) -> Tensor:
        parts = []
        if self._word_vectors is not None:
            parts.append(F.embedding(rows[:, -1], self._word_vectors))
        if self._reads_characters:
            parts.append(self._combined(self._convolved(rows[:, :-1], count), self._highways.layers, None, count))
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return self._combined(features, [], self._projection, count)
