"""What a text file of vectors gave, kept beside it as the own format, which needs no parsing."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable

from elmo_fast.errors import ElmoFastError, sentence_of
from elmo_fast.static import _safetensors_file
from elmo_fast.static._bytes import Parsed

# Below this reading text takes well under a second.
WORTH_BYTES = 1 << 25
END_BYTES = 1 << 16


def cache_path(path: str) -> str:
    """Where the cache of a file lies."""
    return f"{path}.cache.safetensors"


def read_through(path: str, format: str, read: Callable[[str, int | None], Parsed], limit: int | None) -> Parsed:
    """The words and vectors of `path`, from its cache where that is whole and of the file as it is; else both anew."""
    key = key_of(path, format)
    kept = cache_path(path)
    if os.path.exists(kept):
        try:
            parsed, metadata = _safetensors_file.read_with_metadata(kept, limit)
            if metadata.get("source") == key:
                return parsed
        except ElmoFastError as error:
            warnings.warn(f"the cache cannot be used, and {path} is read again: {error}", stacklevel=3)
    parsed = read(path, limit)
    if limit is None:
        try:
            _safetensors_file.write(kept, parsed.words, parsed.matrix, {"source": key})
        except OSError as error:
            warnings.warn(f"no cache is kept for {path}, which is slow to read: {sentence_of(error)}", stacklevel=3)
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
