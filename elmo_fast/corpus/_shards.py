"""Writes the arrays of a prepared corpus: each file as its content arrives, its header when the length is known."""

import contextlib
import hashlib
import io
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus._format import dtype_of, shard_files
from elmo_fast.corpus.pieces import Ids
from elmo_fast.files import flush

_BOUNDARY = np.zeros(1, np.uint32)


class ArrayFile:
    """A one-dimensional .npy file that grows by appending; `numpy.save` does not report a full disk."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._file, self._dtype, self.length = file, dtype.newbyteorder("<"), 0
        self.write_header()

    def write_header(self) -> None:
        """Writes the current length; numpy leaves room for it to grow."""
        header = io.BytesIO()
        about = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(header, about)
        self._file.seek(0)
        self._file.write(header.getvalue())

    def append(self, values: npt.NDArray[Any]) -> None:
        """Appends the values."""
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.length += len(values)


@contextlib.contextmanager
def array_file(path: pathlib.Path) -> Iterator[ArrayFile]:
    """Yields an empty array file of the dtype of its name; at the end it is complete and on disk."""
    with open(path, "wb") as raw:
        file = ArrayFile(raw, dtype_of(path.name))
        yield file
        file.write_header()
    flush(path)


class Shards:
    """The shard files of a folder; a new shard begins when one more sentence would exceed `most` numbers.

    digest: updated with the sentences; count: shards so far; sentences, numbers: how many have been written.
    """

    def __init__(self, folder: pathlib.Path, most: int, digest: "hashlib._Hash") -> None:
        self.folder, self.most, self.digest = folder, most, digest
        self.count = self.sentences = self.numbers = 0

    def __enter__(self) -> "Shards":
        self._begin()
        return self

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)

    def _begin(self) -> None:
        self._files = contextlib.ExitStack()
        self._ids, self._starts = (
            self._files.enter_context(array_file(self.folder / name)) for name in shard_files(self.count)
        )
        self._ids.append(_BOUNDARY)
        self.count += 1

    def add(self, numbers: Ids) -> None:
        """Writes whole sentences: their numbers, and a 0 after each."""
        ends = np.flatnonzero(numbers == 0) + 1
        while ends.size:
            fit = int(np.searchsorted(ends, self.most - self._ids.length, side="right"))
            if not fit and self._starts.length:
                self._files.close()
                self._begin()
                continue
            # A sentence longer than `most` gets a shard of its own.
            some = ends[: max(fit, 1)]
            self._starts.append(self._ids.length - 1 + np.concatenate([[0], some[:-1]]))
            self._ids.append(numbers[: some[-1]])
            # Boundaries are before sentences there, and after them here.
            self.digest.update(_BOUNDARY.data)
            self.digest.update(numbers[: some[-1] - 1].data)
            self.sentences, self.numbers = self.sentences + len(some), self.numbers + int(some[-1])
            numbers, ends = numbers[some[-1] :], ends[len(some) :] - some[-1]


def renumbered(path: pathlib.Path, numbers: Ids, at_once: int = 1 << 20) -> Iterator[Ids]:
    """The text of a piece with each number replaced by that of `numbers`, in parts of whole sentences."""
    rest = np.zeros(0, np.uint32)
    with open(path, "rb") as file:
        while data := file.read(4 * max(at_once, len(rest))):
            part = np.concatenate([rest, numbers[np.frombuffer(data, np.uint32)]])
            zeros = np.flatnonzero(part == 0)
            end = int(zeros[-1]) + 1 if zeros.size else 0
            rest = part[end:]
            if end:
                yield part[:end]
