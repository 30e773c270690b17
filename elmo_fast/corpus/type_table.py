"""The distinct words of a corpus as bytes, and their characters on a device."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import not_a_string
from elmo_fast.text import characters
from elmo_fast.text.characters import RAW_CHARACTERS, CharacterTable, utf8_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class TypeTable:
    """Words by their number, as bytes.

    data: concatenated UTF-8 bytes of all words, uint8; ends: where each word ends, [words] uint64.
    """

    def __init__(self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.uint64]) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, words: Iterable[str]) -> "TypeTable":
        """The table of `words`, in order; surrogates, which UTF-8 cannot encode, are dropped."""
        not_a_string(words, "words", "a list of words")
        return cls(*utf8_of(words))

    def __len__(self) -> int:
        return len(self.ends)

    def words(self, indices: Iterable[int] | None = None) -> list[str]:
        """The words of these numbers; None for all."""
        chosen = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"types are numbered from 0 to {len(self) - 1}; got {chosen.min()} to {chosen.max()}")
        starts, ends = self._bounds(chosen)
        return [bytes(self.data[i:j]).decode() for i, j in zip(starts.tolist(), ends.tolist(), strict=True)]

    def characters(self, max_characters: int, device: "torch.device | str" = "cpu") -> "TypeCharacters":
        """Every word's characters, truncated to `max_characters` slots, on a device."""
        return TypeCharacters(CharacterTable.of_utf8((self.data, self.ends), max_characters), device)

    def _bounds(self, chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        ends = self.ends[chosen].astype(np.int64)
        return np.where(chosen > 0, self.ends[chosen - 1].astype(np.int64), 0), ends


# Bytes that UTF-8 has not stand for the markers and for padding, the raw ids from 256 on.
FIRST_MARKER = 0xF8


class TypeCharacters:
    """A CharacterTable on a device, from which ids are gathered there: C bytes per type instead of 8 C."""

    def __init__(self, table: CharacterTable, device: "torch.device | str") -> None:
        import torch

        self.max_characters = table.max_characters
        codes = np.empty((len(table), self.max_characters), np.uint8)
        for first in range(0, len(table), characters._WORDS_AT_ONCE):
            rows = np.arange(first, min(first + characters._WORDS_AT_ONCE, len(table)))
            ids = table.ids(rows, RAW_CHARACTERS, np.int16)
            codes[rows] = np.where(ids > 255, ids - 256 + FIRST_MARKER, ids)
        self._codes = torch.from_numpy(codes).to(device)
        meant = np.arange(1, 257)
        meant[FIRST_MARKER : FIRST_MARKER + RAW_CHARACTERS - 256] = np.arange(257, RAW_CHARACTERS + 1)
        self._ids = torch.from_numpy(meant).to(device)

    def ids(self, types: "Tensor") -> "Tensor":
        """The prediction ids (bytes + 1; padding slots 261) of each type, without waiting for the device.

        types: numbers of types, any shape, int64, on the table's device. Returns types.shape + [C] int64.
        """
        codes = self._codes.index_select(0, types.reshape(-1))
        return self._ids.index_select(0, codes.reshape(-1).int()).view(*types.shape, self.max_characters)
