"""The cache of a text file of vectors: the same beside it in our own format, which needs no parsing."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable

from elmo_fast.errors import ElmoFastError, sentence_of
from elmo_fast.static import _safetensors_file
from elmo_fast.static._bytes import Parsed

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
            parsed, metadata = _safetensors_file.read_with_metadata(kept, limit)
            if metadata.get("source") == key:
                return parsed
        except ElmoFastError as error:
            warnings.warn(f"the cache cannot be used, so {path} is read again: {error}", stacklevel=3)
    parsed = read(path, limit)
    if limit is None:
        try:
            _safetensors_file.write(kept, parsed.words, parsed.matrix, {"source": key})
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
