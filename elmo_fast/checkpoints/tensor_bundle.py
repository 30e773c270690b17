"""TensorFlow's checkpoints (`NAME.index`, `NAME.data-00000-of-0000N`) without TensorFlow: its tensor bundles.

The index is a sorted table of LevelDB: blocks of entries whose keys share prefixes, each block with a masked CRC-32C;
an index of blocks; a footer of 48 bytes that ends in a magic number. The empty key has the bundle's header; every other
key is a variable's name, and its value says where its bytes are: shard, offset, size, checksum. Both are messages of
protocol buffers (tensor_bundle.proto).
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import CheckpointError, read_failures_named, refuse
from ..memory import reader

_REFLECTED = 0x82F63B78  # 0x1EDC6F41, bits reversed
_WIDE, _NARROW = 1 << 16, 1 << 6  # words of 4 bytes in a row
Array = np.ndarray[Any, np.dtype[np.uint32]]
_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
# Keys share prefixes, so that a small file may expand to any size; of a checkpoint they have some kilobytes.
_MOST_BYTES_OF_KEYS = 64 << 20
INDEX = ".index"
_MOST_BYTES = 64 << 20  # of an index; a biLM's has some kilobytes
_MOST_SHARDS = 10_000
# Numbers of types.proto: float32, float64, float16; others are of variables that are not weights.
_DTYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
_FIXED = {1: 8, 5: 4}  # bytes of the kinds of fields that have a fixed size
Fields = dict[int, list[int | bytes]]


def crc32c(data: Any) -> int:
    """Return the checksum of a buffer: crc32c(b"123456789") is 0xE3069283.

    A CRC is linear: the words in one column of rows of `width` words act on it as their sum in which each is advanced
    by the rows below. So rows are added up, and what is left is a message of one row.
    """
    return _after(np.frombuffer(data, np.uint8), 0xFFFFFFFF) ^ 0xFFFFFFFF


def _after(octets: Any, crc: int) -> int:
    """Return what a CRC becomes after more bytes.

    Of many by rows of words, and of the row that is left by narrower ones.
    """
    for width in (_WIDE, _NARROW):
        if len(octets) >= 8 * width:
            rows = octets[: len(octets) // (4 * width) * 4 * width].view("<u4").reshape(-1, width)
            return _after(octets[rows.nbytes :], _after(_sum_of_rows(rows, crc, width), 0))
    for octet in octets.tolist():
        crc = _TABLE[(crc ^ octet) & 0xFF] ^ crc >> 8
    return crc


def unmasked(crc: int) -> int:
    """Return the checksum that TensorFlow stores as `crc`: it stores it rotated and with a constant added."""
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _sum_of_rows(rows: Array, crc: int, width: int) -> Array:
    """One row, whose bytes have the checksum of all, with the start `crc` included."""
    low, high = _advances(width)
    total = rows[0].astype(np.uint32)
    total[0] ^= crc
    for row in rows[1:]:
        total = low[total & 0xFFFF] ^ high[total >> 16] ^ row
    return total.view(np.uint8)


def _after_a_byte(octet: int) -> int:
    for _ in range(8):
        octet = octet >> 1 ^ (_REFLECTED if octet & 1 else 0)
    return octet


_TABLE = [_after_a_byte(octet) for octet in range(256)]


@functools.cache
def _advances(width: int) -> tuple[Array, Array]:
    """Return what a CRC becomes after a row of zeros, for each of its lower and of its upper halves."""
    after = [_TABLE[bit & 0xFF] ^ bit >> 8 for bit in (1 << n for n in range(32))]  # of each bit, after a byte
    for _ in range((4 * width).bit_length() - 1):
        after = [_combined(after, value) for value in after]
    tables = []
    for half in (after[:16], after[16:]):
        table = np.zeros(1, np.uint32)
        for value in half:
            table = np.concatenate([table, table ^ np.uint32(value)])
        tables.append(table)
    return tables[0], tables[1]


def _combined(after: list[int], value: int) -> int:
    result = 0
    for bit, each in enumerate(after):
        result ^= each if value >> bit & 1 else 0
    return result


def table_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    if len(content) < _FOOTER:
        raise ValueError(f"wanted {_FOOTER} bytes or more, found {len(content)}")
    if int.from_bytes(content[-8:], "little") != _MAGIC:
        raise ValueError("it does not end in the magic number of a table")
    end = expanded = 0
    for _, handle in _entries(_block(content, _handle(content[-_FOOTER:], after_handles=1))):
        offset, size = _handle(handle)
        if offset < end:
            raise ValueError("a block that begins within the one before it")
        end = offset + size
        for key, value in _entries(_block(content, (offset, size))):
            expanded += len(key)
            if expanded > _MOST_BYTES_OF_KEYS:
                raise ValueError(f"keys of more than {_MOST_BYTES_OF_KEYS:,} bytes")
            yield key, value


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while True:
        octet = data[place]
        value, place, shift = value | (octet & 0x7F) << shift, place + 1, shift + 7
        if octet < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _handle(data: bytes, after_handles: int = 0) -> tuple[int, int]:
    """Offset and size of a block, behind as many other handles."""
    place = 0
    for _ in range(after_handles + 1):
        offset, place = varint(data, place)
        size, place = varint(data, place)
    return offset, size


def _block(content: bytes, handle: tuple[int, int]) -> bytes:
    """Return a block without its trailer: a byte that says how it is compressed, and the checksum of both."""
    offset, size = handle
    block, trailer = content[offset : offset + size], content[offset + size : offset + size + _TRAILER]
    if len(block) != size or len(trailer) != _TRAILER:
        raise ValueError("a block behind the end of the file")
    if crc32c(block + trailer[:1]) != unmasked(int.from_bytes(trailer[1:], "little")):
        raise ValueError("the checksum of a block is not that of its bytes")
    if trailer[0]:
        raise ValueError("a compressed block, as TensorFlow writes none")
    return block


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block, which ends in the places of entries with whole keys, and their number."""
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    place, key = 0, b""
    while place < end:
        shared, place = varint(block, place)
        unshared, place = varint(block, place)
        size, place = varint(block, place)
        if shared > len(key) or place + unshared + size > end:
            raise ValueError("an entry that is longer than its block")
        key = key[:shared] + block[place : place + unshared]
        place += unshared + size
        yield key, block[place - size : place]
    if place != end:
        raise ValueError("a block without entries")


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
        """Return the file of a shard, in the folder of the index."""
        name = f"{self.path.name.removesuffix(INDEX)}.data-{number:05d}-of-{self.shards:05d}"
        return self.path.with_name(name)


@reader
def read_index(path: str | os.PathLike[str]) -> Bundle:
    """Return the variables in `NAME.index`, beside which all its shards lie.

    Raises: CheckpointError naming the file and what is missing or damaged.
    """
    with read_failures_named(path), open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError(f"wanted at most {_MOST_BYTES} bytes, found more")
        entries = dict(table_entries(content))
        header = _fields(entries.pop(b"", b""))
        shards, big_endian = _number(header, 1), _number(header, 2)
        if not 1 <= shards <= _MOST_SHARDS or big_endian:
            what = f"wanted 1 to {_MOST_SHARDS:,} shards of little-endian numbers"
            raise ValueError(f"{what}, found {shards}, {big_endian}")
        bundle = Bundle(Path(path), shards, {name.decode(): _entry(value) for name, value in entries.items()})
    except (ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: not the index of a TensorFlow checkpoint, or damaged ({error})") from error
    if missing := [each.name for n in range(shards) if not (each := bundle.shard(n)).is_file()]:
        refuse(path, [f"wanted {shards:,} shards in its folder", *(f"{name} is missing" for name in missing)])
    return bundle


def read_variable(bundle: Bundle, name: str) -> np.ndarray:
    """Return the numbers of a variable, in its dtype; the checksum is compared.

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


def _fields(message: bytes) -> Fields:
    """Return the fields of a message: varints and fixed 32 bits as numbers, the others as bytes."""
    fields: Fields = {}
    place = 0
    while place < len(message):
        tag, place = varint(message, place)
        if tag & 7 == 0:
            value, place = varint(message, place)
            fields.setdefault(tag >> 3, []).append(value)
            continue
        if tag & 7 not in (2, *_FIXED):
            raise ValueError(f"a field of the unknown kind {tag & 7}")
        size, place = varint(message, place) if tag & 7 == 2 else (_FIXED[tag & 7], place)
        data, place = message[place : place + size], place + size
        if len(data) != size:
            raise ValueError("a field that is longer than its message")
        fields.setdefault(tag >> 3, []).append(data if tag & 7 == 2 else int.from_bytes(data, "little"))
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
    dtype, shard, offset, size, checksum = (_number(fields, key) for key in (1, 3, 4, 5, 6))
    return Entry(_DTYPES.get(dtype), dims, shard, offset, size, checksum, 7 in fields)
