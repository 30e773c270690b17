"""Text, one sentence per line."""

import os
from collections.abc import Iterator

from elmo_fast.text.sentences import read_lines
from elmo_fast.text.sources.base import Sentence, Source


class TextFile(Source):
    """A text file, one sentence per line, tokens separated by white space; .gz and .zst are unpacked.

    name: None: its path. Reading raises as read_lines does.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path, self.name = path, name or os.fspath(path)

    def sentences(self) -> Iterator[Sentence]:
        return (Sentence(line.split(), line) for _, line in read_lines(self.path))
