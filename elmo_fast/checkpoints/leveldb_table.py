"""The sorted tables of LevelDB, in which TensorFlow keeps a checkpoint's index.

Blocks of entries whose keys share prefixes, each block with a masked CRC-32C; an index of blocks; a footer of 48 bytes
that ends in a magic number. What is damaged raises ValueError or IndexError.
"""

from collections.abc import Iterator

from .crc32c import crc32c, unmasked

_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
# Keys share prefixes, so that a small file may expand to any size; of a checkpoint they have some kilobytes.
_MOST_BYTES_OF_KEYS = 64 << 20


def table_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table."""
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
    """A number of seven bits a byte, lowest first, and the place after it."""
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
    """A block without its trailer: a byte that says how it is compressed, and the checksum of both."""
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
    """The keys and values of a block, which ends in the places of entries with whole keys, and their number."""
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
