"""TensorFlow's checkpoints (`NAME.index`, `NAME.data-00000-of-0000N`) without TensorFlow: its tensor bundles.

The index is a table of LevelDB. The empty key has the bundle's header; every other key is a variable's name, and its
value says where its bytes are: shard, offset, size, checksum. Both are messages of protocol buffers
(tensor_bundle.proto).
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import CheckpointError, read_failures_named
from ..shortage import reader
from ._complaints import refuse
from .crc32c import crc32c, unmasked
from .leveldb_table import table_entries, varint

INDEX = ".index"
_MOST_BYTES = 64 << 20  # of an index; a biLM's has some kilobytes
_MOST_SHARDS = 10_000
# Numbers of types.proto: float32, float64, float16; others are of variables that are not weights.
_DTYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
_FIXED = {1: 8, 5: 4}  # bytes of the kinds of fields that have a fixed size
Fields = dict[int, list[int | bytes]]


class Entry(NamedTuple):
    """Where a variable's numbers are. dtype: None if they are no floating-point numbers; sliced: stored in parts."""

    dtype: str | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class Bundle(NamedTuple):
    """An index that was read: its path, the number of shards, the variables by name."""

    path: Path
    shards: int
    entries: dict[str, Entry]

    def shard(self, number: int) -> Path:
        """The file of a shard, beside the index."""
        name = f"{self.path.name.removesuffix(INDEX)}.data-{number:05d}-of-{self.shards:05d}"
        return self.path.with_name(name)


@reader
def read_index(path: str | os.PathLike[str]) -> Bundle:
    """The variables in `NAME.index`. Raises: CheckpointError naming the file and what is missing or damaged."""
    with read_failures_named(path), open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    with _damage_named(path):
        if len(content) > _MOST_BYTES:
            raise ValueError(f"wanted at most {_MOST_BYTES} bytes, found more")
        found = dict(table_entries(content))
        header = _fields(found.pop(b"", b""))
        shards, big_endian = _number(header, 1), _number(header, 2)
        if not 1 <= shards <= _MOST_SHARDS or big_endian:
            what = f"wanted 1 to {_MOST_SHARDS:,} shards of little-endian numbers"
            raise ValueError(f"{what}, found {shards}, {big_endian}")
        return Bundle(Path(path), shards, {name.decode(): _entry(value) for name, value in found.items()})


@reader
def check_shards(path: str | os.PathLike[str], bundle: Bundle) -> None:
    """Raises CheckpointError naming every shard of the index at `path` that is missing."""
    if missing := [file.name for n in range(bundle.shards) if not (file := bundle.shard(n)).is_file()]:
        refuse(path, [f"wanted {bundle.shards:,} shards beside it", *(f"{name} is missing" for name in missing)])


def read_variable(bundle: Bundle, name: str) -> np.ndarray:
    """The numbers of a variable, in its dtype; the checksum is compared.

    Raises: CheckpointError naming the shard and the variable.
    """
    entry, shard = bundle.entries[name], bundle.shard(bundle.entries[name].shard)
    if entry.dtype is None or entry.sliced:
        refuse(bundle.path, [f"{name}: wanted floating-point numbers in one piece, found others"])
    with read_failures_named(shard), open(shard, "rb") as file:
        if os.fstat(file.fileno()).st_size < entry.offset + entry.size:
            refuse(shard, [f"{name}: wanted {entry.size:,} bytes at {entry.offset:,}, found the end of the file"])
        values = np.fromfile(file, np.uint8, entry.size, offset=entry.offset)
    if crc32c(values) != unmasked(entry.checksum):
        refuse(shard, [f"{name}: damaged: its checksum is not the one in {bundle.path.name}"])
    numbers = values.view(entry.dtype)
    if numbers.size != np.prod(entry.shape, dtype=object):
        refuse(bundle.path, [f"{name}: wanted {entry.shape} numbers, found {numbers.size}"])
    return numbers.reshape(entry.shape)


@contextlib.contextmanager
def _damage_named(path: object) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, IndexError, struct.error, OverflowError) as error:
        raise CheckpointError(f"{path}: not the index of a TensorFlow checkpoint, or damaged ({error})") from error


def _fields(message: bytes) -> Fields:
    """The fields of a message: varints and fixed 32 bits as numbers, the others as bytes."""
    found: Fields = {}
    place = 0
    while place < len(message):
        tag, place = varint(message, place)
        if tag & 7 == 0:
            value, place = varint(message, place)
            found.setdefault(tag >> 3, []).append(value)
            continue
        if tag & 7 not in (2, *_FIXED):
            raise ValueError(f"a field of the unknown kind {tag & 7}")
        size, place = varint(message, place) if tag & 7 == 2 else (_FIXED[tag & 7], place)
        data, place = message[place : place + size], place + size
        if len(data) != size:
            raise ValueError("a field that is longer than its message")
        found.setdefault(tag >> 3, []).append(data if tag & 7 == 2 else int.from_bytes(data, "little"))
    return found


def _number(fields: Fields, key: int) -> int:
    """The last value of a number; 0 is not stored."""
    value = fields.get(key, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {key} is no number")
    return value


def _entry(message: bytes) -> Entry:
    fields = _fields(message)
    shape = _fields(b"".join(part for part in fields.get(2, []) if isinstance(part, bytes)))
    dims = tuple(_number(_fields(part), 1) for part in shape.get(2, []) if isinstance(part, bytes))
    dtype, shard, offset, size, checksum = (_number(fields, key) for key in (1, 3, 4, 5, 6))
    return Entry(_DTYPES.get(dtype), dims, shard, offset, size, checksum, 7 in fields)
