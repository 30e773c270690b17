"""Text files in pieces of bounded size, tables as one each, and their words as numbers in order of appearance.

Rules and errors are those of `elmo_fast.text.read_lines`: to report a problem, the file is read again from its
beginning, line by line.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from elmo_fast._io import compressed
from elmo_fast._io.atomic_folder import places_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import opened_source, read_lines, rereadable
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.sources import Reading, files_to_read

# Of a prepared folder, in the first bytes of its file META.
FORMAT, META = "elmo_fast corpus", "meta.json"
PIECE_BYTES = 32 << 20
BLOCK_BYTES = 1 << 20
# Represents a line end among words. No word can equal it, because NUL bytes are refused.
LINE_END = "\0"
Ids = npt.NDArray[np.uint32]


def is_prepared(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a folder that `prepare` wrote, intact or damaged."""
    for place in places_of(path):
        if not (place / META).is_file():  # not a pipe or a device either, which could be read for ever
            continue
        with contextlib.suppress(FileNotFoundError), open(place / META, "rb") as file:
            return FORMAT.encode() in file.read(100)
    return False


class ChosenLines(NamedTuple):
    """The lines of a text that are held out or, with `heldout` False, the others.

    share: fraction of the lines that are held out, chosen by a digest of the line without its white space at the ends:
    so they are the same in any order of files, and equal lines are on one side.
    """

    share: float = 0.0
    heldout: bool = False

    def contain(self, line: str) -> bool:
        """Return whether a line is one of these."""
        digest = hashlib.blake2b(line.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return (int.from_bytes(digest) < self.share * 2.0**64) == self.heldout


class Piece(NamedTuple):
    """The bytes [begin, end) of a file, whole lines; a compressed file is one piece of its compressed size.

    table: how to read a file that is no text, as a whole; lines: which of them to read.
    """

    path: str
    begin: int
    end: int
    table: Reading | None = None
    lines: ChosenLines = ChosenLines()


def size_of(path: str) -> int:
    """Return the bytes of a file or of the files of a folder; 0 for a dataset that is somewhere else."""
    place = pathlib.Path(path)
    return sum(file.stat().st_size for file in (place, *place.rglob("*")) if file.is_file())


def bytes_of_text(pattern: str, format_in: str | None = None) -> int:
    """Return the bytes of all files that `pattern` names, as they are on the disk."""
    return sum(size_of(path) for path, _ in files_to_read(pattern, format_in))


def pieces_of(path: str, size: int) -> Iterator[Piece]:
    """Split a file after the first line end at or past each multiple of `size` bytes, if it is not compressed."""
    total = os.stat(path).st_size
    begin = 0
    with open(path, "rb") as file:
        for cut in () if compressed.is_packed(path) else range(size, total, size):
            if cut > begin:
                file.seek(cut - 1)
                while (line := file.readline(BLOCK_BYTES)) and not line.endswith(b"\n"):
                    pass
                yield Piece(path, begin, end := file.tell())
                begin = end
    if begin < total:
        yield Piece(path, begin, total)


@contextlib.contextmanager
def pieces_matching(pattern: str, **reading: Unpack[Reading]) -> Iterator[list[Piece]]:
    """Yield the pieces of all files that `pattern` names, in order; what can be read only once is copied.

    reading: of tables. Raises ElmoFastError if there is none, or if `pattern` is a prepared folder.
    """
    if is_prepared(pattern):
        raise ElmoFastError(f"{pattern} is a prepared corpus; give text files here")
    with contextlib.ExitStack() as stack:
        pieces = list[Piece]()
        for path, kind in files_to_read(pattern, reading.get("format_in")):
            file = path if kind == "dataset" else stack.enter_context(rereadable(path))
            if kind == "text":
                pieces += pieces_of(file, PIECE_BYTES)
            else:
                pieces.append(Piece(file, 0, size_of(file), reading | {"format_in": kind}))
        yield pieces


def numbering(boundary: Hashable) -> dict[Any, int]:
    """Return a dict that numbers its keys from 1 in order of first lookup; `boundary` is 0."""
    numbers = defaultdict(None, {boundary: 0})
    numbers.default_factory = numbers.__len__
    return numbers


def numbered(piece: Piece, numbers: dict[str, int], tokenizer: str | None = None) -> Iterator[Ids]:
    """Yield the numbers of a piece's words, part by part, each sentence followed by one 0; blank lines are skipped.

    numbers: from `numbering(LINE_END)`; new words are added; tokenizer: one of TOKENIZERS.

    Raises ElmoFastError and OSError as `read_lines` does.
    """
    if piece.table is not None:
        yield from _numbered_rows(piece, piece.table, numbers, tokenizer)
        return
    number, tokenize = numbers.__getitem__, tokenizer_of(tokenizer)
    last = 0
    for text in _texts_of(piece.lines, _texts(piece)) if piece.lines.share else _texts(piece):
        words = tokenize(text.replace("\n", f" {LINE_END} "))
        ids = np.fromiter(map(number, words), np.uint32, len(words))
        before = np.concatenate(([np.uint32(last)], ids[:-1]))
        ids = ids[(ids != 0) | (before != 0)]
        if ids.size:
            last = int(ids[-1])
            yield ids
    if last:
        yield np.zeros(1, np.uint32)


def _numbered_rows(piece: Piece, table: Reading, numbers: dict[str, int], tokenizer: str | None) -> Iterator[Ids]:
    """Yield the numbers of the words of a table's rows, as `numbered` does."""
    number, ids = numbers.__getitem__, array("I")
    with opened_source(piece.path, tokenizer=tokenizer, **table) as source:
        for index, (tokens, name) in enumerate(source.sentences()):
            if LINE_END in tokens:
                raise ElmoFastError(f"{source.name}, {source.place(index)}: a token is a NUL character; remove it")
            if tokens and (not piece.lines.share or piece.lines.contain(" ".join(tokens) if source.keyed else name)):
                ids.extend(map(number, tokens))
                ids.append(0)
            if len(ids) >= BLOCK_BYTES:
                yield np.frombuffer(ids, np.uint32)
                ids = array("I")
    if ids:
        yield np.frombuffer(ids, np.uint32)


def _texts_of(lines: ChosenLines, texts: Iterator[str]) -> Iterator[str]:
    """Yield those lines of the texts, which end at white space, that `lines` contains."""
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        yield "".join(f"{line}\n" for line in whole if lines.contain(line))
    if lines.contain(rest):
        yield rest


def _texts(piece: Piece) -> Iterator[str]:
    """Yield the text of a piece in blocks that end at white space, with \\n as the only line end."""
    first = piece.begin == 0
    try:
        for block in _blocks(piece):
            text = block.decode("utf-8")
            if LINE_END in text:
                _complain(piece.path)
            if first:
                text, first = text.removeprefix("\ufeff"), False
            yield text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    except UnicodeDecodeError:
        _complain(piece.path)


def _blocks(piece: Piece) -> Iterator[bytes]:
    rest, before = b"", 0  # before: bytes of the rest's line before the rest
    with compressed.reading(piece.path) as file:
        left = 1 << 62 if compressed.is_packed(piece.path) else piece.end - file.seek(piece.begin)
        # What has no white space yet grows by a quarter, so that one endless word is not scanned again and again.
        while left and (data := file.read(min(left, max(BLOCK_BYTES, len(rest) // 4)))):
            left -= len(data)
            data = rest + data
            if before + len(data) > compressed.LONGEST_LINE:
                first, *others = re.split(rb"[\r\n]", data)
                if max([before + len(first), *map(len, others)]) > compressed.LONGEST_LINE:
                    _complain(piece.path)
            end = max(data.rfind(b"\n"), data.rfind(b" ")) + 1
            begin = max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1
            rest, before = data[end:], end - begin if begin else before + end
            if end:
                yield data[:end]
    if rest:
        yield rest


def _complain(path: str) -> None:
    for _ in read_lines(path):
        pass
    raise ElmoFastError(f"{path} changed while being read; start again when it is complete")
