"""Context-free vectors of a list of words, computed once: AllenNLP's vocab_to_cache."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmo_fast.modules._loading import loses_values
from elmo_fast.modules.boundaries import add_boundaries_to_vectors
from elmo_fast.modules.word_encoder import WordTable


class CachedWords(WordTable):
    """The vectors of n words by their index; the first word stands for the padding.

    Args:
        encode: the vectors [n, D] of n words.
        words: to be cached.
        trained: whether the vectors are trained, apart from whatever encodes them.

    Attributes:
        weight: [n, D].
    """

    _begin: Tensor | None
    _end: Tensor | None

    def __init__(self, encode: Callable[[list[str]], Tensor], words: list[str], trained: bool) -> None:
        super().__init__()
        with torch.no_grad():
            vectors = encode(["<S>", "</S>", *words])
        self._encode_words = encode
        self.weight = nn.Parameter(vectors[2:].clone(), requires_grad=trained)
        self.register_buffer("_begin", vectors[0].clone(), persistent=False)
        self.register_buffer("_end", vectors[1].clone(), persistent=False)

    def covers(self, indices: Tensor) -> bool:
        """Whether all indices are those of cached words; True unseen (an index outside is an error then) while
        compiling, and of tensors without values."""
        if torch.compiler.is_compiling() or indices.is_meta or indices.numel() == 0:
            return True
        return int(indices.min()) >= 0 and int(indices.max()) < len(self.weight)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """As WordEncoder's, of indices [B, T] int64; 0 is padding."""
        begin, end = self._boundary_vectors(self.weight.device)
        vectors, mask = add_boundaries_to_vectors(self.encode(inputs), inputs > 0, begin, end)
        return {"token_embedding": vectors, "mask": mask}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "CachedWords":
        super()._apply(fn, recurse)
        if self._begin is not None and loses_values(fn):
            self._begin = self._end = None
        return self

    @torch.no_grad()
    def _boundary_vectors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Those of BOS and EOS; encoded again, with the weights of now, where a way through "meta" lost them."""
        if self._begin is None or self._end is None or self._begin.device != device:
            self._begin, self._end = self._encode_words(["<S>", "</S>"])
        return self._begin, self._end
