"""Files of token vectors: the formats that `embed` writes, and the cache that neighbours and the tasks read again."""

from elmo_fast.embed.token_files.flat import FORMAT, FlatFile, read_cache_folder, read_flat, writing_cache_folder
from elmo_fast.embed.token_files.formats import (
    FORMATS,
    NAMED,
    STANDARD_OUTPUT,
    FileLayout,
    Format,
    Write,
    check_room,
    format_of,
)

__all__ = [
    "FORMAT",
    "FORMATS",
    "NAMED",
    "STANDARD_OUTPUT",
    "FileLayout",
    "FlatFile",
    "Format",
    "Write",
    "check_room",
    "format_of",
    "read_cache_folder",
    "read_flat",
    "writing_cache_folder",
]
