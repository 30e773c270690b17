"""Files of token vectors: the formats that `embed` writes, and the cache that neighbours and the tasks read again."""

from elmo_fast.embed.token_files.cache_folder import FORMAT, CacheFolder, writing_cache_folder
from elmo_fast.embed.token_files.formats import (
    FORMATS,
    NAMED,
    STANDARD_OUTPUT,
    Contents,
    Format,
    Write,
    check_room,
    format_of,
    mapped,
)

__all__ = [
    "FORMAT",
    "FORMATS",
    "NAMED",
    "STANDARD_OUTPUT",
    "CacheFolder",
    "Contents",
    "Format",
    "Write",
    "check_room",
    "format_of",
    "mapped",
    "writing_cache_folder",
]
