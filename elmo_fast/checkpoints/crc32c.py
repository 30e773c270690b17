"""CRC-32C (Castagnoli), as TensorFlow's checkpoints have it, of gigabytes: in numpy, a row of words at a time."""

import functools
from typing import Any

import numpy as np

_REFLECTED = 0x82F63B78  # 0x1EDC6F41, bits reversed
_WIDE, _NARROW = 1 << 16, 1 << 6  # words of 4 bytes in a row
Array = np.ndarray[Any, np.dtype[np.uint32]]


def crc32c(data: Any) -> int:
    """The checksum of a buffer: crc32c(b"123456789") is 0xE3069283.

    A CRC is linear: the words in one column of rows of `width` words act on it as their sum in which each is advanced
    by the rows below. So rows are added up, and what is left is a message of one row.
    """
    octets = np.frombuffer(data, np.uint8)
    crc = 0xFFFFFFFF
    for width in (_WIDE, _NARROW):
        while len(octets) >= 8 * width:
            rows = octets[: len(octets) // (4 * width) * 4 * width].view("<u4").reshape(-1, width)
            octets = octets[rows.nbytes :]
            crc = _bytewise(_sum_of_rows(rows, crc, width), 0)
    return _bytewise(octets, crc) ^ 0xFFFFFFFF


def unmasked(crc: int) -> int:
    """The checksum that TensorFlow stores as `crc`: it stores it rotated and with a constant added."""
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


def _bytewise(octets: Any, crc: int) -> int:
    """The checksum after more bytes; of a long row, by rows that are narrower."""
    if len(octets) >= 8 * _NARROW and len(octets) % (4 * _NARROW) == 0:
        octets, crc = _sum_of_rows(octets.view("<u4").reshape(-1, _NARROW), crc, _NARROW), 0
    for octet in octets.tolist():
        crc = _TABLE[(crc ^ octet) & 0xFF] ^ crc >> 8
    return crc


def _after_a_byte(octet: int) -> int:
    for _ in range(8):
        octet = octet >> 1 ^ (_REFLECTED if octet & 1 else 0)
    return octet


_TABLE = [_after_a_byte(octet) for octet in range(256)]


@functools.cache
def _advances(width: int) -> tuple[Array, Array]:
    """What a CRC becomes after a row of zeros, for each of its lower and of its upper halves."""
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
