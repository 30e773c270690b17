"""The text that is measured on: one sentence per line, words separated by spaces, from a file or from Python itself."""

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
        """One sentence per line."""
        path.write_text("".join(" ".join(sentence) + "\n" for sentence in self.sentences), encoding="utf-8")


def read(path: pathlib.Path | None) -> Text:
    """The sentences of `path`, else of DEFAULT where it exists, else of the documentation in pydoc_data.topics."""
    path = path or (DEFAULT if DEFAULT.is_file() else None)
    if path is None:
        lines = python_documentation()
        source = "pydoc_data.topics (the documentation that Python carries)"
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        source = f"{path.name}, {len(lines)} sentences of {path.parent.name}"
    sentences = [line.split()[:LONGEST] for line in lines if line.split()]
    return Text(sentences, f"{source}, cut at {LONGEST} words, in order")


def python_documentation() -> list[str]:
    """Sentences of Python's language reference, one per line, words and punctuation separated by spaces."""
    from pydoc_data.topics import topics

    found = []
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            words = re.findall(r"\w+|[^\w\s]", paragraph)
            end = 0
            for i, word in enumerate(words):
                if word in ".?!" and i + 1 - end >= 5:
                    found.append(" ".join(words[end : i + 1]))
                    end = i + 1
    return found


def many_lines(path: pathlib.Path | None, lines: int) -> Text:
    """So many sentences: those of `path` (or the default), of the train files beside it, then from the start again."""
    text = read(path)
    sentences, source = text.sentences, text.source
    beside = sorted((path or DEFAULT).parent.glob("train-*.txt")) if (path or DEFAULT).is_file() else []
    for other in beside:
        if len(sentences) < lines:
            sentences = sentences + read(other).sentences
            source += f" + {other.name}"
    if len(sentences) < lines:
        source += f", repeated {-(-lines // len(sentences))} times"
    return Text([sentences[i % len(sentences)] for i in range(lines)], source)
