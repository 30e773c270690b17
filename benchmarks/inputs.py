"""What is measured on: a text (one sentence per line, from a file or from Python itself), weights, words of a step."""

import itertools
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import ROOT
from elmo_fast import batch_to_ids
from elmo_fast.corpus.streams import StreamBatch
from elmo_fast.pretrain.config import ORIGINAL_FILTERS
from tests.support.weights import make_weights

SHARED = pathlib.Path(os.environ.get("ELMO_FAST_SHARED", ROOT.parent / "shared"))
DEFAULT = SHARED / "data" / "classics" / "heldout.txt"
LONGEST = 60
SIZES = {
    "original": {"cell": 4096, "proj": 512, "filters": ORIGINAL_FILTERS, "char_dim": 16},
    "small": {"cell": 256, "proj": 64, "filters": ((1, 16), (2, 16), (3, 32), (4, 64)), "char_dim": 16, "n_highway": 1},
}


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


def read_text(path: pathlib.Path | None) -> Text:
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


def write_weights(size: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Write options.json and weights.hdf5 of the original or the small size, random weights; return both paths."""
    return make_weights(folder / size, **SIZES[size])


def words_of_step(
    forward: Sequence[str], backward: Sequence[str], targets: Mapping[str, int], rows: int, device: str = "cpu"
) -> tuple[StreamBatch, Callable[[Tensor], Tensor]]:
    """Return both directions' words of one step, `rows` rows of them end to end, and what spells them on a device; each
    predicts the word it reads.

    targets: the id to predict of each word.
    """
    streams = (forward, backward)
    numbers = {word: i for i, word in enumerate(dict.fromkeys([*forward, *backward]))}
    spelled = batch_to_ids([list(numbers)])[0].to(device)
    types, expected = (
        torch.tensor([[ids[word] for word in stream] for stream in streams]).view(2, rows, -1)
        for ids in (numbers, targets)
    )
    steps = types.shape[2]
    return StreamBatch(types, expected, np.full(rows, steps), rows * steps, []), lambda chosen: spelled[chosen]
