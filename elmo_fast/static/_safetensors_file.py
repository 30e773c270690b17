"""The own format: safetensors with `vectors` [V, D], the words' bytes end to end, where each ends, and a checksum."""

import itertools
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.json_files import parsed
from elmo_fast.static._bytes import Parsed

FORMAT = "elmo_fast.vectors"
VERSION = "1"
ENTRY = "elmo_fast"


def read(path: str, limit: int | None) -> Parsed:
    """All words and vectors, or the first `limit`; ElmoFastError where the file is damaged."""
    return read_with_metadata(path, limit)[0]


def read_with_metadata(path: str, limit: int | None) -> tuple[Parsed, dict[str, str]]:
    """The same, and what else the file says of itself."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = _about(file.metadata())
            if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
                raise ElmoFastError(
                    f"{path}: safetensors, but not word vectors of this library (format {FORMAT} {VERSION})"
                )
            arrays = {name: file.get_tensor(name) for name in ("vectors", "words", "ends")}
    except SafetensorError as error:
        raise ElmoFastError(f"{path}: not a safetensors file, or a damaged one ({error})") from error
    if metadata.get("crc32") != _checksum(arrays):
        raise ElmoFastError(f"{path}: damaged: what is in it is not what was written")
    text = arrays["words"].tobytes()
    starts = [0, *arrays["ends"].tolist()]
    words = [text[a:b].decode() for a, b in itertools.pairwise(starts)]
    return Parsed(words[:limit], arrays["vectors"][:limit]), metadata


def write(
    path: str, words: Sequence[str], matrix: npt.NDArray[np.float32], extra: Mapping[str, str] | None = None
) -> None:
    """Writes them, with what else the file is to say of itself."""
    from safetensors.numpy import save_file

    if os.fspath(path).endswith(".gz"):
        raise ElmoFastError(f"{path!r}: safetensors files are read in place and not packed; leave out .gz")
    try:
        data = [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise ElmoFastError(f"the word {error.object!r} cannot be written as UTF-8") from error
    arrays: dict[str, npt.NDArray[Any]] = {
        "vectors": np.ascontiguousarray(matrix, np.float32),
        "words": np.frombuffer(b"".join(data), np.uint8),
        "ends": np.cumsum(np.fromiter(map(len, data), np.int64, len(data))),
    }
    metadata = {"format": FORMAT, "version": VERSION, "crc32": _checksum(arrays), **(extra or {})}
    with replacing(path) as temporary:
        # One entry, as safetensors writes several in any order, and the same vectors are to give the same file.
        save_file(arrays, temporary, {ENTRY: json.dumps(metadata)})


def _about(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """What a file says of itself; nothing where it is not ours."""
    try:
        return parsed((metadata or {}).get(ENTRY, "{}"), dict[str, str], ENTRY)
    except CheckpointError:
        return {}


def _checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Against damage, not against malice, which would cost a SHA-256."""
    value = 0
    for name in ("vectors", "words", "ends"):
        array = arrays[name]
        value = zlib.crc32(repr((name, array.dtype.str, array.shape)).encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"
