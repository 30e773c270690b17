"""Our own format: safetensors with `vectors` [V, D], the words' bytes end to end, where each ends, and a checksum."""

import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.json_files import parsed
from elmo_fast.static._bytes import Matrix, Parsed, encoded

FORMAT = "elmo_fast.vectors"
VERSION = "1"
ENTRY = "elmo_fast"


def read(path: str, limit: int | None) -> Parsed:
    """All words and vectors, or the first `limit`; ElmoFastError if the file is damaged."""
    return read_with_metadata(path, limit)[0]


def read_with_metadata(path: str, limit: int | None) -> tuple[Parsed, dict[str, str]]:
    """The same, and the file's metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = _metadata(file.metadata())
            if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
                raise ElmoFastError(
                    f"{path}: safetensors, but not word vectors of this library (format {FORMAT} {VERSION})"
                )
            arrays = {name: file.get_tensor(name) for name in ("vectors", "words", "ends")}
    except SafetensorError as error:
        raise ElmoFastError(f"{path}: not a safetensors file, or a damaged one ({error})") from error
    if metadata.get("crc32") != _checksum(arrays):
        raise ElmoFastError(f"{path}: damaged: its content is not what was written")
    text = arrays["words"].tobytes()
    starts = [0, *arrays["ends"].tolist()]
    words = [text[a:b].decode() for a, b in itertools.pairwise(starts)]
    return Parsed(words[:limit], arrays["vectors"][:limit]), metadata


def write(path: str, words: Sequence[str], matrix: Matrix, extra: Mapping[str, str] | None = None) -> None:
    """Writes them; extra: more metadata."""
    from safetensors.numpy import save_file

    if path.endswith(".gz"):
        raise ElmoFastError(f"{path!r}: safetensors files are not compressed; leave out .gz")
    data = encoded(words)
    arrays: dict[str, npt.NDArray[Any]] = {
        "vectors": np.ascontiguousarray(matrix, np.float32),
        "words": np.frombuffer(b"".join(data), np.uint8),
        "ends": np.cumsum(np.fromiter(map(len, data), np.int64, len(data))),
    }
    metadata = {"format": FORMAT, "version": VERSION, "crc32": _checksum(arrays), **(extra or {})}
    with replacing(path) as temporary:
        # One entry: safetensors writes several in any order, and the same vectors must give the same file.
        save_file(arrays, temporary, {ENTRY: json.dumps(metadata)})


def _metadata(entries: Mapping[str, str] | None) -> dict[str, str]:
    """Our entry of a file's metadata; empty if it has none."""
    try:
        return parsed((entries or {}).get(ENTRY, "{}"), dict[str, str], ENTRY)
    except CheckpointError:
        return {}


def _checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """It detects damage, not malice, which would cost a SHA-256."""
    value = 0
    for name in ("vectors", "words", "ends"):
        array = arrays[name]
        value = zlib.crc32(repr((name, array.dtype.str, array.shape)).encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"
