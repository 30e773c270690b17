"""Word vectors as safetensors, our own format, and the cache of a text file: the same beside it in this format."""

import hashlib
import itertools
import json
import os
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import CheckpointError, ElmoFastError, sentence_of
from elmo_fast.fields import parsed
from elmo_fast.files import replacing
from elmo_fast.static._word2vec_files import Matrix, Parsed, encoded

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


# Smaller text files are read in well under a second.
WORTH_BYTES = 1 << 25
END_BYTES = 1 << 16


def cache_path(path: str) -> str:
    """The cache of a file."""
    return f"{path}.cache.safetensors"


def read_through(path: str, format: str, read: Callable[[str, int | None], Parsed], limit: int | None) -> Parsed:
    """The content of `path`, from its cache if that is intact and up to date, else read, and cached if complete."""
    key = key_of(path, format)
    kept = cache_path(path)
    if os.path.exists(kept):
        try:
            parsed, metadata = read_with_metadata(kept, limit)
            if metadata.get("source") == key:
                return parsed
        except ElmoFastError as error:
            warnings.warn(f"the cache cannot be used, so {path} is read again: {error}", stacklevel=3)
    parsed = read(path, limit)
    if limit is None:
        try:
            write(kept, parsed.words, parsed.matrix, {"source": key})
        except OSError as error:
            warnings.warn(f"no cache is kept for {path}, so reading stays slow: {sentence_of(error)}", stacklevel=3)
    return parsed


def key_of(path: str, format: str) -> str:
    """Size, time of the last change, and a digest of both ends of a file, as JSON."""
    about = os.stat(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(END_BYTES))
        file.seek(max(0, about.st_size - END_BYTES))
        digest.update(file.read(END_BYTES))
    return json.dumps([format, about.st_size, about.st_mtime_ns, digest.hexdigest()])
