"""The file of a LayerCache: safetensors, whole or absent, with a digest that is looked at before anything is believed.

One tensor `layers` [L+1, N, 2D], the words of all sentences end to end. The metadata hold the key (what the layers are
of) and the SHA-256 of the tensor's bytes. The header's length depends on neither, so that it is written last.
"""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.json_files import parsed, typed
from elmo_fast.lock import locked

FORMAT = "elmo_fast layers 1"
STORAGES = {"float32": "F32", "float16": "F16"}
_ALIGNED, _LONGEST_HEADER = 64, 1 << 16
_AT_ONCE = 1 << 24

Layers = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, int, int]
Write = Callable[[int, Layers], None]
"""Takes the first word's number and the layers [L+1, n, 2D] of n words."""


class DamagedFile(Exception):
    """What is wrong with a file of layers, in words."""


def read_layers(path: pathlib.Path, key: str, shape: Shape, storage: str) -> Layers:
    """The layers as a read-only map of the file, all of whose bytes have been compared with their digest.

    Raises: FileNotFoundError; DamagedFile: cut, changed, or of another key.
    """
    with open(path, "rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little") if len(start) == 8 else 0
        try:
            header = parsed(file.read(size) if 0 < size <= _LONGEST_HEADER else b"", dict[str, Any], "header")
            digest = typed(header.get("__metadata__"), dict[str, str], "header").get("sha256", "")
        except CheckpointError as error:
            raise DamagedFile("its header cannot be read") from error
        wanted = _header(key, shape, storage, digest)
        if header != json.loads(wanted[8:]) or size != len(wanted) - 8:
            raise DamagedFile("its header is not the one of these sentences and this model")
        count = int(np.prod(shape)) * np.dtype(storage).itemsize
        found = os.fstat(file.fileno()).st_size - len(wanted)
        if found != count:
            raise DamagedFile(f"wanted {count} bytes of layers, found {found}")
        if _digest(file, len(wanted)) != digest:
            raise DamagedFile("its bytes are not those that were written")
        return np.memmap(file, np.dtype(storage).newbyteorder("<"), "r", len(wanted), shape)


def write_layers(path: pathlib.Path, key: str, shape: Shape, storage: str, fill: Callable[[Write], None]) -> None:
    """Writes the file from what `fill` hands to the function it is given; it appears when it is whole.

    Raises: OSError, before anything is computed where the disk has no room; ElmoFastError: numbers too large for
    float16.
    """
    dtype = np.dtype(storage).newbyteorder("<")
    header, row = _header(key, shape, storage, "0" * 64), shape[2] * dtype.itemsize
    with replacing(path) as temporary, open(temporary, "r+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, len(header) + shape[0] * shape[1] * row)

        def write(first: int, layers: Layers) -> None:
            with np.errstate(over="ignore"):
                values = np.ascontiguousarray(layers, dtype)
            if storage == "float16" and not np.isfinite(values).all():
                raise ElmoFastError('storage="float16" cannot hold these layers: numbers above 65504; use "float32"')
            for layer, rows in enumerate(values):
                _put(file.fileno(), rows.tobytes(), len(header) + (layer * shape[1] + first) * row)

        fill(write)
        _put(file.fileno(), _header(key, shape, storage, _digest(file, len(header))), 0)


@contextlib.contextmanager
def only_one(path: pathlib.Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Lets one process at a time into the block; `waiting` is called before waiting for another one.

    Where files cannot be locked all are let in, each writes its own file, and the last one's stays: they are the same.
    """
    handle = locked(path, lambda holder: waiting())
    try:
        yield
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


def _header(key: str, shape: Shape, storage: str, digest: str) -> bytes:
    """The eight bytes of its length and the header, blanks at the end so that the tensor is aligned."""
    end = int(np.prod(shape)) * np.dtype(storage).itemsize
    content = {
        "__metadata__": {"format": FORMAT, "key": key, "sha256": digest},
        "layers": {"dtype": STORAGES[storage], "shape": list(shape), "data_offsets": [0, end]},
    }
    text = json.dumps(content).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text


def _digest(file: Any, start: int) -> str:
    file.seek(start)
    found, buffer = hashlib.sha256(), bytearray(_AT_ONCE)
    while count := file.readinto(buffer):
        found.update(memoryview(buffer)[:count])
    return found.hexdigest()


def _put(handle: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, offset)
        view, offset = view[count:], offset + count
