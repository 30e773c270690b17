"""FASTA: sequences of residues, each below a line with its name."""

import os
import re
from collections.abc import Iterator

from elmo_fast.errors import ElmoFastError
from elmo_fast.text.sentences import read_lines
from elmo_fast.text.sources.base import Sentence, Source

_OTHER = re.compile(r"[^A-Z*]")


class FastaFile(Source):
    """A FASTA file: each record is a sentence, each residue a token, and the first word of its ">" line its name.

    The sequence may take several lines. Lower-case residues are read as upper-case ones; a "*" at the end marks the
    end of the translation and is dropped, another is a token; white space and blank lines are skipped. .gz and .zst are
    unpacked; name: None: its path.

    Reading raises ElmoFastError naming the line: another character, a gap ("-"), a record without name or residues,
    residues before the first ">"; and as read_lines does.
    """

    unit, keyed = "record", True

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path, self.name = path, name or os.fspath(path)

    def sentences(self) -> Iterator[Sentence]:
        header, key, residues = 0, "", list[str]()
        for index, line in read_lines(self.path):
            if line.startswith(">"):
                if header:
                    yield self._record(header, key, residues)
                header, key, residues = index + 1, self._key(index, line), []
            elif line:
                residues += self._residues(index, line, bool(header))
        if header:
            yield self._record(header, key, residues)

    def _key(self, index: int, line: str) -> str:
        words = line[1:].split(maxsplit=1)
        if not words:
            raise ElmoFastError(f"{self.name}, line {index + 1}: '>' without a name; write '>NAME' above each sequence")
        return words[0]

    def _residues(self, index: int, line: str, in_record: bool) -> str:
        if not in_record:
            raise ElmoFastError(
                f"{self.name}, line {index + 1}: wanted a line '>NAME' before the first residue, found {line[:40]!r}; "
                "is this a FASTA file?"
            )
        found = "".join(line.split()).upper()
        if bad := _OTHER.search(found):
            what = "a gap" if bad.group() == "-" else f"the character {bad.group()!r}"
            advice = "remove the gaps of an alignment" if bad.group() == "-" else "residues are letters or '*'"
            raise ElmoFastError(f"{self.name}, line {index + 1}: {what} is no residue; {advice}")
        return found

    def _record(self, header: int, key: str, residues: list[str]) -> Sentence:
        if residues and residues[-1] == "*":
            residues.pop()
        if not residues:
            raise ElmoFastError(f"{self.name}, line {header}: the record {key!r} has no residues; remove it")
        return Sentence(residues, key)
