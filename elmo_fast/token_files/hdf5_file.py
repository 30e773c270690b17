"""HDF5 files whose layout is known before their contents: the library creates datasets one by one, slowly.

The oldest version of the format, as h5py writes it by default, so that every HDF5 library reads it and can add to it:
a superblock (version 0), and a root group of contiguous datasets found by name in a B-tree (version 1) over a heap of
names. Source: "HDF5 File Format Specification Version 3.0", sections II.A, III.A.1, III.B, III.C, III.D and IV.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NOWHERE = 0xFFFF_FFFF_FFFF_FFFF
ENTRIES, CHILDREN = 8, 32  # of a leaf and of a node of the B-tree: twice the superblock's K
BLOCK = 1 << 12  # the vectors begin at a multiple of it
Integers = np.ndarray[Any, np.dtype[np.int64]]

# A symbol table entry: the place of a name in the heap, its object header, and 24 bytes of cache that stay empty.
_ENTRY = np.dtype([("name", "<u8"), ("header", "<u8"), ("cache", "V24")])
_LEAF = np.dtype([("start", "V6"), ("used", "<u2"), ("entries", _ENTRY, ENTRIES)])
# Key k is the last name of child k - 1.
_PAIR = np.dtype([("key", "<u8"), ("child", "<u8")])
_NODE = np.dtype(
    [
        ("start", "V5"), ("level", "u1"), ("used", "<u2"), ("left", "<u8"), ("right", "<u8"),
        ("pairs", _PAIR, CHILDREN), ("last", "<u8"),
    ]
)  # fmt: skip


class Layout(NamedTuple):
    """All that precedes the vectors; where each dataset's begin, [datasets] int64; the size of the file."""

    header: bytes
    starts: Integers
    end: int


def layout(names: Sequence[str], shapes: Integers, dtype: Any) -> Layout:
    """The layout of a file of datasets in the root group, their vectors in the order given.

    names: different, without "/" and NUL; shapes: [datasets, rank] int64; dtype: float32 or float16, of all.
    """
    encoded = [name.encode() for name in names]
    heap, places = _heap(encoded)
    order = np.array(sorted(range(len(encoded)), key=encoded.__getitem__), np.int64)
    at_heap = 96 + 40
    at_headers = at_heap + 32 + len(heap)
    headers = _object_headers(shapes, np.dtype(dtype))
    at_tree = at_headers + headers.nbytes
    tree, root = _tree(places[order], at_headers + order * headers.itemsize, at_tree)
    first = -(-(at_tree + len(tree)) // BLOCK) * BLOCK
    sizes = shapes.prod(axis=1) * np.dtype(dtype).itemsize
    ends = first + np.cumsum(sizes)
    # One without elements lies nowhere: -1 is NOWHERE.
    headers["address"], headers["size"] = np.where(sizes, ends - sizes, -1).astype("<u8"), sizes
    end = int(ends[-1])
    begin = _superblock(end, root, at_heap) + b"HEAP\0\0\0\0" + _words(len(heap), 1, at_heap + 32)  # 1: none free
    return Layout((begin + heap + headers.tobytes() + tree).ljust(first, b"\0"), ends - sizes, end)


def _words(*values: int) -> bytes:
    """8 bytes each."""
    return np.array(values, "<u8").tobytes()


def _superblock(end: int, root: int, at_heap: int) -> bytes:
    """The superblock and the object header of the root group, 96 + 40 bytes."""
    sizes = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0, ENTRIES // 2, 0, CHILDREN // 2, 0, 0, 0, 0, 0])
    places = _words(0, NOWHERE, end, NOWHERE, 0, 96, 1, root, at_heap)
    header = bytes([1, 0, 1, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0]) + _message(0x11, 16) + _words(root, at_heap)
    return sizes + places + header


def _heap(names: list[bytes]) -> tuple[bytes, Integers]:
    """The names, each ended by NUL and filled up to a multiple of 8 bytes, after the empty name; and their places."""
    padded = [b"\0" * 8, *(name.ljust(len(name) // 8 * 8 + 8, b"\0") for name in names)]
    return b"".join(padded), np.cumsum([len(name) for name in padded[:-1]], dtype=np.int64)


def _object_headers(shapes: Integers, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The object header of each dataset, without the address and the size of its vectors."""
    rank, bits = shapes.shape[1], 8 * dtype.itemsize
    mantissa = np.finfo(dtype).nmant
    exponent = bits - 1 - mantissa
    space = bytes([1, rank, 1, 0, 0, 0, 0, 0])
    # Class 1 (floating point), little-endian, the mantissa's first bit implied, the sign in the highest bit.
    number = bytes([0x11, 0x20, bits - 1, 0, dtype.itemsize, 0, 0, 0, 0, 0, bits, 0, mantissa, exponent, 0, mantissa])
    number += np.array([(1 << (exponent - 1)) - 1, 0], "<u4").tobytes()
    fields: list[Any] = [("start", "V16"), ("space", "V16"), ("shape", "<u8", rank), ("most", "<u8", rank)]
    fields += [("number", "V32"), ("fill", "V16"), ("place", "V10"), ("address", "<u8"), ("size", "<u8"), ("pad", "V6")]
    headers = np.zeros(len(shapes), np.dtype(fields))
    whole = headers.itemsize - 16
    constant = {
        "start": bytes([1, 0, 4, 0, 1, 0, 0, 0, *whole.to_bytes(4, "little"), 0, 0, 0, 0]),
        "space": _message(0x01, 8 + 16 * rank) + space,
        "number": _message(0x03, 24) + number,
        "fill": _message(0x05, 8) + bytes([2, 2, 2, 1, 0, 0, 0, 0]),
        "place": _message(0x08, 24) + bytes([3, 1]),
    }
    for field, value in constant.items():
        headers[field] = np.void(value)
    headers["shape"] = headers["most"] = shapes
    return headers


def _message(kind: int, size: int) -> bytes:
    return bytes([kind, 0, size, 0, 0, 0, 0, 0])


def _tree(names: Integers, headers: Integers, at: int) -> tuple[bytes, int]:
    """The leaves and nodes of the B-tree over datasets sorted by name, which begin at `at`; and where its root is."""
    leaves = np.zeros(-(-len(names) // ENTRIES), _LEAF)
    leaves["start"] = np.void(b"SNOD\x01\x00")
    leaves["used"] = _shares(len(names), ENTRIES)
    entries = leaves["entries"].reshape(-1)
    entries["name"][: len(names)], entries["header"][: len(names)] = names, headers
    leaves["entries"] = entries.reshape(-1, ENTRIES)
    parts, level = [leaves.tobytes()], 0
    places = at + np.arange(len(leaves)) * _LEAF.itemsize
    lasts = names[np.minimum(np.arange(1, len(leaves) + 1) * ENTRIES, len(names)) - 1]
    at += leaves.nbytes
    while level == 0 or len(places) > 1:
        nodes, lasts = _level(places, lasts, level, at)
        places = at + np.arange(len(nodes)) * _NODE.itemsize
        at, level = at + nodes.nbytes, level + 1
        parts.append(nodes.tobytes())
    return b"".join(parts), int(places[0])


def _level(places: Integers, lasts: Integers, level: int, at: int) -> tuple[np.ndarray[Any, Any], Integers]:
    """The nodes over children at `places`, whose last names are `lasts`; and the nodes' own last names."""
    nodes = np.zeros(-(-len(places) // CHILDREN), _NODE)
    nodes["start"], nodes["level"], nodes["used"] = np.void(b"TREE\x00"), level, _shares(len(places), CHILDREN)
    beside = at + np.arange(-1, len(nodes) + 1) * _NODE.itemsize
    beside[[0, -1]] = -1  # NOWHERE
    nodes["left"], nodes["right"] = beside[:-2].astype("<u8"), beside[2:].astype("<u8")
    pairs = np.zeros(len(nodes) * CHILDREN, _PAIR)
    pairs["child"][: len(places)] = places
    pairs["key"][1 : len(places)] = lasts[:-1]
    own = lasts[np.minimum(np.arange(1, len(nodes) + 1) * CHILDREN, len(places)) - 1]
    nodes["pairs"] = pairs.reshape(-1, CHILDREN)
    # The key after the last child stands behind it, in a full node behind all pairs.
    nodes["last"] = own
    if (rest := int(nodes["used"][-1])) < CHILDREN:
        nodes["pairs"]["key"][-1, rest] = own[-1]
    return nodes, own


def _shares(count: int, each: int) -> Integers:
    """How many of `count` things are in each node that holds up to `each`."""
    return np.minimum(count - np.arange(-(-count // each)) * each, each)
