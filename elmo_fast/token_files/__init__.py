"""Files of token vectors: the formats that `embed` writes, and the cache that neighbours and the tasks read again."""

from elmo_fast.token_files.cache_file import FORMAT, CacheFile, DamagedFile, writing_cache_file
from elmo_fast.token_files.formats import FORMATS, NAMED, Contents, Write, warn_if_named_otherwise
from elmo_fast.token_files.room import check_room

__all__ = [
    "FORMAT",
    "FORMATS",
    "NAMED",
    "CacheFile",
    "Contents",
    "DamagedFile",
    "Write",
    "check_room",
    "warn_if_named_otherwise",
    "writing_cache_file",
]
