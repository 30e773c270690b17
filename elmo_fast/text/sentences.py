"""Text files as streams of sentences, one per line."""

import contextlib
import functools
import glob
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator

from elmo_fast._io import compressed
from elmo_fast.errors import ElmoFastError

# Bytes that are not UTF-8 become lone surrogates and are then reported with their line. Not "utf-8-sig": it drops the
# first one or two bytes of a byte order mark if nothing follows them.
_ENCODING, _ON_ERROR = "utf-8", "surrogateescape"
_MARK = "\ufeff"  # a byte order mark at the start is not part of the first word
_UNDECODED = re.compile("[\udc80-\udcff]")


def files_matching(pattern: str) -> list[str]:
    """Return the files that `pattern` names, sorted: itself, those of a glob ('corpus/part-*'), or all of a folder.

    Files of a folder whose names begin with a dot are skipped. Raises ElmoFastError if there is none.
    """
    if os.path.isdir(pattern):
        with os.scandir(pattern) as entries:
            paths = sorted(entry.path for entry in entries if entry.is_file() and not entry.name.startswith("."))
        if not paths:
            raise ElmoFastError(f"{pattern}: the folder contains no file")
    else:
        names = [pattern] if os.path.exists(pattern) or pattern == "-" else sorted(glob.glob(pattern))
        paths = [name for name in names if not os.path.isdir(name)]
        if not paths:
            raise ElmoFastError(f"{pattern}: no file matches")
    return paths


def ending(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file's name below .gz or .zst, in lower case."""
    return os.path.splitext(os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst"))[1]


def read_lines(path: str | os.PathLike[str], whole: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (index from 0, line stripped of white space) of a UTF-8 text file, reading as it goes.

    path: a file, plain, gzip or Zstandard (extra zst), or "-" for standard input; lines end with any of Python's
        universal newlines or \\r\\r\\n, and have at most `compressed.LONGEST_LINE` bytes
    whole: keep a line's white space and its end

    Raises ElmoFastError naming file and line for bytes that are not UTF-8, NUL bytes, a longer line and damaged
    compressed data, and for a folder; OSError otherwise.
    """
    path = os.fspath(path)
    name = "standard input" if path == "-" else path
    index, most = -1, compressed.LONGEST_LINE
    try:
        with contextlib.ExitStack() as stack:
            packed = sys.stdin.buffer if path == "-" else stack.enter_context(compressed.reading(path))
            stream = io.TextIOWrapper(packed, _ENCODING, _ON_ERROR, newline="")
            stack.callback(stream.detach)  # or standard input would be closed with it
            before = ""
            for line in iter(functools.partial(stream.readline, most + 1), ""):
                if line == "\r\n" and before.endswith("\r"):  # \r\r\n ends one line: some programs translate ends twice
                    before = line
                    continue
                before, index = line, index + 1
                if index == 0:
                    line = line.removeprefix(_MARK)
                # A character has four bytes at most.
                if 4 * len(line) > most < len(line.encode(_ENCODING, _ON_ERROR)):
                    raise ElmoFastError(
                        f"{name}, line {index + 1}: longer than {most:,} bytes; give text of one sentence per line"
                    )
                if "\0" in line:
                    raise ElmoFastError(
                        f"{name}, line {index + 1}: contains a NUL byte: this is a binary file; give UTF-8 text"
                    )
                if not line.isascii() and (bad := _UNDECODED.search(line)):
                    raise ElmoFastError(
                        f"{name}, line {index + 1}, character {bad.start() + 1}: the byte "
                        f"0x{ord(bad.group()) - 0xDC00:02x} is not UTF-8; convert the file "
                        "(for example with iconv), or unpack it"
                    )
                yield index, line if whole else line.strip()
    except IsADirectoryError as error:
        raise ElmoFastError(
            f"{name}: is a folder, not a text file; give one of its files or, joined, all: cat {name}/* | elmo-fast "
            "... with - as the name of the input"
        ) from error


@contextlib.contextmanager
def rereadable(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a path that can be read more than once: `path`, or a temporary copy when it is "-" or a pipe."""
    path = os.fspath(path)
    if path != "-" and not stat.S_ISFIFO(os.stat(path).st_mode):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="elmo-fast-", suffix=f"-{os.path.basename(path)}") as copy:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as source:
            shutil.copyfileobj(source, copy)
        copy.flush()
        yield copy.name
