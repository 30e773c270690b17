"""The distinct words of a corpus as bytes, and their characters on a device."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import BOS, BOS_WORD, BOW, EOS, EOS_WORD, EOW, PAD

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# How the two sentence markers are held among the lengths of words.
_BOS_LENGTH, _EOS_LENGTH = -1, -2
_TYPES_AT_ONCE = 1 << 16


class TypeTable:
    """Words by their number, as bytes.

    data: UTF-8 bytes of all words, end to end, uint8; ends: where each word ends in them, [words] uint64.
    """

    def __init__(self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.uint64]) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, words: Iterable[str]) -> "TypeTable":
        """The table of `words`, in their order; surrogates, which UTF-8 has no bytes for, are dropped."""
        encoded = [word.encode("utf-8", "ignore") for word in words]
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths, dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.ends)

    def words(self, indices: Iterable[int] | None = None) -> list[str]:
        """The words of these numbers; all of them when None."""
        chosen = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"types are numbered from 0 to {len(self) - 1}; got {chosen.min()} to {chosen.max()}")
        starts, ends = self._bounds(chosen)
        return [bytes(self.data[i:j]).decode() for i, j in zip(starts.tolist(), ends.tolist(), strict=True)]

    def characters(self, max_characters: int, device: "torch.device | str" = "cpu") -> "TypeCharacters":
        """Every word's characters, cut to what `max_characters` slots hold, on a device."""
        if max_characters < 3:
            raise ElmoFastError(
                f"max_characters must be 3 or more (two slots mark the word's ends); got {max_characters}"
            )
        width = max_characters - 2
        rows, lengths = np.empty((len(self), width), np.uint8), np.empty(len(self), np.int16)
        for first in range(0, len(self), _TYPES_AT_ONCE):
            some = slice(first, first + _TYPES_AT_ONCE)
            starts, ends = self._bounds(np.arange(len(self))[some])
            lengths[some] = np.minimum(ends - starts, width)
            slots = np.arange(width)
            rows[some] = self.data.take(starts[:, None] + slots, mode="clip") * (slots < lengths[some, None])
        for marker, length in ((BOS_WORD, _BOS_LENGTH), (EOS_WORD, _EOS_LENGTH)):
            lengths[self._rows_of(marker.encode())] = length
        return TypeCharacters(rows, lengths, device)

    def _bounds(self, chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        ends = self.ends[chosen].astype(np.int64)
        return np.where(chosen > 0, self.ends[chosen - 1].astype(np.int64), 0), ends

    def _rows_of(self, word: bytes) -> list[int]:
        starts, ends = self._bounds(np.arange(len(self)))
        alike = np.flatnonzero(ends - starts == len(word)).tolist()
        return [i for i in alike if self.data[starts[i] : ends[i]].tobytes() == word]


class TypeCharacters:
    """The characters of types, from which ids are gathered on the device: C bytes a type in place of 8 C.

    bytes: UTF-8 bytes of each type, [types, C-2] uint8, zero past its length
    lengths: bytes of each type, [types] int16; -1 stands for <S> and -2 for </S>
    """

    def __init__(
        self, rows: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int16], device: "torch.device | str"
    ) -> None:
        import torch

        self.max_characters = rows.shape[1] + 2
        self.bytes = torch.from_numpy(rows).to(device)
        self.lengths = torch.from_numpy(lengths).to(device)
        self._slots = torch.arange(-1, self.max_characters - 1, device=device)

    def ids(self, types: "Tensor") -> "Tensor":
        """The prediction ids (bytes + 1; padding slots 261) of each type, without waiting for the device.

        types: numbers of types, any shape, int64, on the table's device. Returns types.shape + [C] int64.
        """
        import torch

        flat = types.reshape(-1)
        lengths = self.lengths.index_select(0, flat).unsqueeze(1)
        bodies = torch.nn.functional.pad(self.bytes.index_select(0, flat), (1, 1)).long()
        marker = torch.where(lengths == _BOS_LENGTH, BOS, EOS)
        bodies = torch.where((lengths < 0) & (self._slots == 0), marker, bodies)
        ends = torch.where(lengths < 0, 1, lengths)
        ids = torch.where(self._slots < ends, bodies, PAD)
        ids = torch.where(self._slots == ends, EOW, ids)
        ids[:, 0] = BOW
        return (ids + 1).view(*types.shape, self.max_characters)
