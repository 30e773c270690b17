"""ELMoForManyLangs' lexicons: one entry a line, a tab, its id; ids from 0 on, in any order."""

from collections.abc import Collection
from pathlib import Path

from ..errors import CheckpointError, read_failures_named, shortened
from ..shortage import reader
from ._complaints import refuse

# The entry of a line that has an id alone: white space at its ends, which a line loses, was all of the entry.
_BLANK = "\u3000"
_DIGITS = 9  # of an id: a number of more is none, and Python takes long to read thousands


@reader
def read_lexicon(path: Path, markers: Collection[str]) -> list[str]:
    """The entries in the order of their ids; `markers` must be among them.

    Raises: CheckpointError naming the file and the line that is damaged, twice there or missing.
    """
    with read_failures_named(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: line {content[: error.start].count(10) + 1} is not UTF-8") from error
    # An editor's mark of UTF-8 is no part of the first entry, unless it is all of it.
    lines = (text if text.startswith("\ufeff\t") else text.removeprefix("\ufeff")).removesuffix("\n").split("\n")
    ids: dict[str, int] = {}
    entries: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        entry, id = _parsed(path, number, line)
        for found, other in ((ids.get(entry), "the id"), (entries.get(id), "the entry")):
            if found is not None:
                refuse(
                    path,
                    [f"line {number}: {shortened(repr(line))} is a duplicate: {other} {found!r:.60} was there before"],
                )
        ids[entry], entries[id] = id, entry
    missing = next((id for id in range(len(entries)) if id not in entries), None)
    if missing is not None:
        refuse(path, [f"wanted the ids 0 to {len(entries) - 1}, each once; {missing} is missing"])
    if absent := [marker for marker in markers if marker not in ids]:
        refuse(path, [f"wanted the entries {', '.join(markers)}; {absent[0]} is missing"])
    return [entries[id] for id in range(len(entries))]


def _parsed(path: Path, number: int, line: str) -> tuple[str, int]:
    *entry, id = line.strip().split("\t")
    if len(entry) > 1 or not (id.isascii() and id.isdecimal()) or len(id) > _DIGITS:
        refuse(path, [f"line {number}: wanted an entry, a tab and its id, found {shortened(repr(line))}"])
    return entry[0] if entry else _BLANK, int(id)
