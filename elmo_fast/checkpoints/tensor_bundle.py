"""TensorFlow's checkpoints (`NAME.index`, `NAME.data-00000-of-0000N`) without TensorFlow: its tensor bundles.

The index is a sorted table of LevelDB: blocks of entries whose keys share prefixes; an index of blocks; a footer of 48
bytes that ends in a magic number. The empty key has the bundle's header; every other key is a variable's name, and its
value says where its bytes are: shard, offset, size. Both are messages of protocol buffers (tensor_bundle.proto).
Checksums (CRC-32C, which neither Python nor torch has) are not compared, as HDF5 weights have none.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import CheckpointError, read_failures_named, refuse

INDEX = ".index"
_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_MOST_SHARDS = 10_000
# Numbers of types.proto: float32, float64, float16; others are of variables that are not weights.
_DTYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
_VARINT, _BYTES, _CHECKSUM = 0, 2, 5  # the kinds of fields; a checksum has four bytes
Fields = dict[int, list[int | bytes]]


class Entry(NamedTuple):
    """Where a variable's numbers are. dtype: None if they are no floating-point numbers; sliced: stored in parts."""

    dtype: str | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    sliced: bool


class Bundle(NamedTuple):
    """An index that was read: its path, the number of shards, the variables by name."""

    path: Path
    shards: int
    entries: dict[str, Entry]

    def shard(self, number: int) -> Path:
        """Return the file of a shard, in the folder of the index."""
        name = f"{self.path.name.removesuffix(INDEX)}.data-{number:05d}-of-{self.shards:05d}"
        return self.path.with_name(name)


def read_index(path: str | os.PathLike[str]) -> Bundle:
    """Return the variables in `NAME.index`, beside which all its shards lie.

    Raises: CheckpointError naming the file and what is missing or damaged.
    """
    path = Path(path)
    with read_failures_named(path):
        content = path.read_bytes()
    try:
        entries = dict(_table(content))
        header = _fields(entries.pop(b"", b""))
        shards, big_endian = _number(header, 1), _number(header, 2)
        if not 1 <= shards <= _MOST_SHARDS or big_endian:
            what = f"wanted 1 to {_MOST_SHARDS:,} shards of little-endian numbers"
            raise ValueError(f"{what}, found {shards}, {big_endian}")
        bundle = Bundle(path, shards, {name.decode(): _entry(value) for name, value in entries.items()})
    except (ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: not the index of a TensorFlow checkpoint, or damaged ({error})") from error
    if missing := [each.name for n in range(shards) if not (each := bundle.shard(n)).is_file()]:
        refuse(path, [f"wanted {shards:,} shards in its folder", *(f"{name} is missing" for name in missing)])
    return bundle


def read_variable(bundle: Bundle, name: str) -> np.ndarray:
    """Return the numbers of a variable, in its dtype. Raises: CheckpointError naming the shard and the variable."""
    entry, shard = bundle.entries[name], bundle.shard(bundle.entries[name].shard)
    if entry.dtype is None or entry.sliced:
        refuse(bundle.path, [f"{name}: wanted floating-point numbers in one piece, found others"])
    size = math.prod(entry.shape)
    with read_failures_named(shard):
        if shard.stat().st_size < entry.offset + size * np.dtype(entry.dtype).itemsize:
            refuse(shard, [f"{name}: wanted {size:,} numbers at byte {entry.offset:,}, found the end of the file"])
        return np.fromfile(shard, entry.dtype, size, offset=entry.offset).reshape(entry.shape)


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    if len(content) < _FOOTER or int.from_bytes(content[-8:], "little") != _MAGIC:
        raise ValueError("it does not end in the magic number of a table")
    footer = content[-_FOOTER:]
    _, place = _handle(footer, 0)  # of the metaindex
    for _, handle in _entries(_block(content, _handle(footer, place)[0])):
        yield from _entries(_block(content, _handle(handle, 0)[0]))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while True:
        octet = data[place]
        value, place, shift = value | (octet & 0x7F) << shift, place + 1, shift + 7
        if octet < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Return offset and size of a block, and the place after them."""
    offset, place = _varint(data, place)
    size, place = _varint(data, place)
    return (offset, size), place


def _block(content: bytes, handle: tuple[int, int]) -> bytes:
    """Return a block without its trailer: a byte that says how it is compressed, and a checksum."""
    offset, size = handle
    if offset + size >= len(content):
        raise ValueError("a block behind the end of the file")
    if content[offset + size]:
        raise ValueError("a compressed block, as TensorFlow writes none")
    return content[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block, which ends in the places of entries with whole keys, and their number."""
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        unshared, place = _varint(block, place)
        size, place = _varint(block, place)
        if shared > len(key) or place + unshared + size > end:
            raise ValueError("an entry that is longer than its block")
        key = key[:shared] + block[place : place + unshared]
        place += unshared + size
        yield key, block[place - size : place]
    if place != end:
        raise ValueError("a block without entries")


def _fields(message: bytes) -> Fields:
    """Return the fields of a message: varints as numbers, the others as bytes."""
    fields: Fields = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        size, place = (4, place) if kind == _CHECKSUM else _varint(message, place)
        value: int | bytes = size  # of a varint
        if kind != _VARINT:
            value, place = message[place : place + size], place + size
        if kind not in (_VARINT, _BYTES, _CHECKSUM) or place > len(message):
            raise ValueError(f"a field of the kind {kind} that is unknown, or longer than its message")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(fields: Fields, key: int) -> int:
    """Return the last value of a number; 0 is not stored."""
    value = fields.get(key, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {key} is no number")
    return value


def _entry(message: bytes) -> Entry:
    fields = _fields(message)
    shape = _fields(b"".join(part for part in fields.get(2, []) if isinstance(part, bytes)))
    dims = tuple(_number(_fields(part), 1) for part in shape.get(2, []) if isinstance(part, bytes))
    dtype, shard, offset = (_number(fields, key) for key in (1, 3, 4))
    return Entry(_DTYPES.get(dtype), dims, shard, offset, 7 in fields)
