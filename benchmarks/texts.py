"""The text that is measured on: one sentence per line, words separated by spaces, from a file or from Python itself."""

import itertools
import os
import pathlib
import re
from typing import NamedTuple

from benchmarks.machine import ROOT

SHARED = pathlib.Path(os.environ.get("ELMO_FAST_SHARED", ROOT.parent / "shared"))
DEFAULT = SHARED / "data" / "classics" / "heldout.txt"
LONGEST = 60


class Text(NamedTuple):
    """Sentences (lists of words) and one sentence on where they are from."""

    sentences: list[list[str]]
    source: str

    def write(self, path: pathlib.Path) -> None:
        """Write one sentence per line."""
        path.write_text("".join(" ".join(sentence) + "\n" for sentence in self.sentences), encoding="utf-8")

    def repeated(self, count: int) -> "Text":
        """Return `count` sentences, from the start again where there are fewer."""
        sentences = list(itertools.islice(itertools.cycle(self.sentences), count))
        return Text(sentences, f"{self.source}, {count / len(self.sentences):.1f} times")


def read(path: pathlib.Path | None) -> Text:
    """Return the sentences of `path`, else of DEFAULT if it exists, else of the documentation in pydoc_data.topics."""
    path = path or (DEFAULT if DEFAULT.is_file() else None)
    if path is None:
        from pydoc_data.topics import topics

        words = " ".join(re.findall(r"\w+|[^\w\s]", "\n".join(topics[name] for name in sorted(topics))))
        lines, source = re.split(r"(?<= [.?!]) ", words), "pydoc_data.topics (the documentation that Python carries)"
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        source = f"{path.name}, {len(lines)} sentences of {path.parent.name}"
    sentences = [line.split()[:LONGEST] for line in lines if line.split()]
    return Text(sentences, f"{source}, cut at {LONGEST} words, in order")
