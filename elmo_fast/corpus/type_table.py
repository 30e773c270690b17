"""The distinct words of a corpus as bytes, and their characters on a device."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import not_a_string
from elmo_fast.text.characters import BOS, BOS_LENGTH, BOW, EOS, EOW, PAD, CharacterTable, utf8_of

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


class TypeCharacters:
    """A CharacterTable on a device, from which ids are gathered there: C bytes per type instead of 8 C."""

    def __init__(self, table: CharacterTable, device: "torch.device | str") -> None:
        import torch

        self.max_characters = table.max_characters
        self.bytes = torch.from_numpy(table.bytes).to(device)
        self.lengths = torch.from_numpy(table.lengths).to(device)
        self._slots = torch.arange(-1, self.max_characters - 1, device=device)

    def ids(self, types: "Tensor") -> "Tensor":
        """The prediction ids (bytes + 1; padding slots 261) of each type, without waiting for the device.

        types: numbers of types, any shape, int64, on the table's device. Returns types.shape + [C] int64.
        """
        import torch

        flat = types.reshape(-1)
        lengths = self.lengths.index_select(0, flat).unsqueeze(1)
        bodies = torch.nn.functional.pad(self.bytes.index_select(0, flat), (1, 1)).long()
        marker = torch.where(lengths == BOS_LENGTH, BOS, EOS)
        bodies = torch.where((lengths < 0) & (self._slots == 0), marker, bodies)
        ends = torch.where(lengths < 0, 1, lengths)
        ids = torch.where(self._slots < ends, bodies, PAD)
        ids = torch.where(self._slots == ends, EOW, ids)
        ids[:, 0] = BOW
        return (ids + 1).view(*types.shape, self.max_characters)
