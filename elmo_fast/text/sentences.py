"""Text files as streams of sentences, one per line."""

import contextlib
import glob
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import PACKING_ERRORS, reading
from elmo_fast.text.tokenizers import tokenizer as tokenizer_of

# Bytes that are not UTF-8 become lone surrogates and are then reported with their line. Not "utf-8-sig": it drops the
# first one or two bytes of a byte order mark if nothing follows them.
_ENCODING, _ON_ERROR = "utf-8", "surrogateescape"
_MARK = "\ufeff"  # a byte order mark at the start is not part of the first word
_UNDECODED = re.compile("[\udc80-\udcff]")


def files_matching(pattern: str) -> list[str]:
    """Return the files that `pattern` names, sorted.

    Itself, those of a glob ('corpus/part-*'), or all files of a folder.

    Files of a folder whose names begin with a dot are skipped. Raises ElmoFastError if there is none.
    """
    if os.path.isdir(pattern):
        with os.scandir(pattern) as entries:
            files = sorted(entry.path for entry in entries if entry.is_file() and not entry.name.startswith("."))
        if not files:
            raise ElmoFastError(f"{pattern}: the folder contains no file")
        return files
    files = [pattern] if os.path.exists(pattern) or pattern == "-" else sorted(glob.glob(pattern))
    if not files:
        raise ElmoFastError(f"{pattern}: no file matches")
    return files


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else reading(path) as raw:
        stream = io.TextIOWrapper(raw, _ENCODING, _ON_ERROR, newline="")
        try:
            yield stream
        finally:
            stream.detach()


def _lines(stream: IO[str]) -> Iterator[str]:
    """Yield the lines of a stream; \\r\\r\\n, written by programs that translate line ends twice, ends one line."""
    before = ""
    for line in stream:
        if line != "\r\n" or not before.endswith("\r"):
            yield line
        before = line


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield (index from 0, line stripped of white space) of a UTF-8 text file, reading as it goes.

    path: a file, gzip by the suffix .gz, Zstandard by .zst (extra zst), or "-" for standard input; lines end with any
        of Python's universal newlines or \\r\\r\\n, and may have any length

    Raises ElmoFastError naming file and line for bytes that are not UTF-8, NUL bytes and damaged compressed data;
    OSError otherwise.
    """
    path = os.fspath(path)
    index = -1
    try:
        with _opened(path) as stream:
            for index, line in enumerate(_lines(stream)):
                line = line.removeprefix(_MARK) if index == 0 else line
                if "\0" in line:
                    raise ElmoFastError(
                        f"{_name(path)}, line {index + 1}: contains a NUL byte: this is a binary file; give UTF-8 text"
                    )
                if not line.isascii() and (bad := _UNDECODED.search(line)):
                    raise ElmoFastError(
                        f"{_name(path)}, line {index + 1}, character {bad.start() + 1}: the byte "
                        f"0x{ord(bad.group()) - 0xDC00:02x} is not UTF-8; convert the file (for example with iconv)"
                    )
                yield index, line.strip()
    except PACKING_ERRORS as error:
        packing = "Zstandard" if path.endswith(".zst") else "gzip"
        raise ElmoFastError(f"{_name(path)}: damaged {packing} data after line {index + 1}: {error}") from error


def read_sentences(path: str | os.PathLike[str], tokenizer: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (index from 0, tokens) of each line of a text file, [] for a blank line.

    tokenizer: one of TOKENIZERS; None splits at white space. Raises as read_lines and as the tokenizer.
    """
    tokenize = tokenizer_of(tokenizer)
    for index, line in read_lines(path):
        yield index, tokenize(line)


@contextlib.contextmanager
def rereadable(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a path that can be read more than once: `path`, or a temporary copy when it is "-" or a pipe."""
    path = os.fspath(path)
    if path != "-" and not stat.S_ISFIFO(os.stat(path).st_mode):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmo-fast-") as folder:
        copy = os.path.join(folder, "standard-input.txt" if path == "-" else os.path.basename(path))
        with contextlib.ExitStack() as stack:
            source = sys.stdin.buffer if path == "-" else stack.enter_context(open(path, "rb"))
            shutil.copyfileobj(source, stack.enter_context(open(copy, "wb")))
        yield copy
