"""Static vectors: counting pairs of words, GloVe's training, text of vectors written and read."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, faster, row
from benchmarks.timing import in_turn, seconds
from elmo_fast.static import Vectors, load_vectors, save_vectors
from elmo_fast.static._numbered_text import numbered_text, ranked
from elmo_fast.static.cooccurrences import BOUNDARY, LEFT_OUT, Cooccurrences, cooccurrences
from elmo_fast.static.glove import GloveWeights, glove_

DIMENSION, WINDOW = 100, 10
# What GloVe's published program (commit 52f7dbc) did on two cores of a machine like this one; no rival of this run.
PUBLISHED = (
    "GloVe's C program, measured elsewhere at these settings: 0.54 M words/s counted, 1.0 M entries/s on 2 threads"
)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(settings: Settings) -> Report:
    """Rows "words/s", "entries/s" and "vectors/s" on one thread and on two."""
    text = texts.many_lines(settings.text, 300 if settings.quick else 200_000)
    report = Report(notes={"text": text.source, "dimension": DIMENSION, "window": WINDOW, "published": PUBLISHED})
    entries, num_words = counting(report, text.sentences, rounds=2 if settings.quick else 7)
    report.notes |= {"vocabulary": num_words, "entries": len(entries.rows)}
    training(
        report, entries, num_words, rounds=2 if settings.quick else 7, most=10_000 if settings.quick else 2_000_000
    )
    reading(report, rounds=2 if settings.quick else 5, rows=50 if settings.quick else 20_000)
    return report


def counting(report: Report, sentences: list[list[str]], rounds: int) -> tuple[Cooccurrences, int]:
    """Words of the text per second, numbers to entries; the entries and V."""
    text = numbered_text(sentences)
    kept = ranked(text, 5, None)
    words = np.full(len(text.counts), LEFT_OUT, np.int32)
    words[kept], words[0] = np.arange(len(kept)), BOUNDARY
    table, tokens = torch.from_numpy(words), int(text.counts[1:].sum())

    def rate(count: int) -> float:
        with threads(count):
            return tokens / seconds(lambda: cooccurrences(text.parts, table, len(kept), window=WINDOW))

    taken = in_turn({"1": lambda: rate(1), "2": lambda: rate(2)}, rounds)
    for count, values in taken.items():
        report.rows.append(row("counting", "elmo_fast", values, threads=int(count), unit="words/s"))
    return cooccurrences(text.parts, table, len(kept), window=WINDOW), len(kept)


def training(report: Report, entries: Cooccurrences, num_words: int, rounds: int, most: int) -> None:
    """Entries per second, and the reference of one by one beside it."""
    order = torch.randperm(len(entries.rows))[:most]
    shuffled = [column[order] for column in entries]
    shapes = (num_words, DIMENSION), (num_words, DIMENSION), (num_words,), (num_words,)
    weights = GloveWeights(*((torch.rand(*shape) - 0.5) / DIMENSION for shape in shapes))
    squares = GloveWeights(*(torch.ones(*shape) for shape in shapes))

    def rate(count: int, backend: str, first: int) -> float:
        mine = [column[:first] for column in shuffled]
        with threads(count):
            return len(mine[0]) / seconds(lambda: glove_(*mine, weights, squares, backend=backend))

    sides = {
        ("elmo_fast", 1): lambda: rate(1, "native", most),
        ("elmo_fast", 2): lambda: rate(2, "native", most),
        ("plain torch", 1): lambda: rate(1, "reference", 200),
    }
    taken = in_turn(sides, rounds)
    rows = [row("training", name, values, threads=n, unit="entries/s") for (name, n), values in taken.items()]
    for ours in rows[:2]:
        faster(ours, rows[2])
    report.rows += rows


def reading(report: Report, rounds: int, rows: int) -> None:
    """Vectors of 300 dimensions per second, with their words, to and from a file, and gensim's reader beside it."""
    vectors = Vectors([f"word{i}" for i in range(rows)], torch.randn(rows, 300).numpy())
    with tempfile.TemporaryDirectory() as folder:
        path = os.fspath(pathlib.Path(folder) / "vectors.txt")

        def save(count: int) -> float:
            with threads(count):
                return rows / seconds(lambda: save_vectors(vectors, path, "word2vec-text"))

        def load(count: int) -> float:
            with threads(count):
                return rows / seconds(lambda: load_vectors(path, "word2vec-text", cache=False))

        for what, call in (("writing text", save), ("reading text", load)):
            taken = in_turn({"1": lambda: call(1), "2": lambda: call(2)}, rounds)  # noqa: B023
            report.rows += [row(what, "elmo_fast", taken[n], threads=int(n), unit="vectors/s") for n in taken]
        gensim(report, path, rows, rounds)


def gensim(report: Report, path: str, rows: int, rounds: int) -> None:
    """gensim's reader, last; its rows are put beside ours."""
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        report.skipped.append("gensim is not installed")
        return
    values = in_turn(
        {"": lambda: rows / seconds(lambda: KeyedVectors.load_word2vec_format(path))}, rounds=min(rounds, 3)
    )
    theirs = row("reading text", "gensim", values[""], threads=1, unit="vectors/s")
    for ours in report.rows[-2:]:
        faster(ours, theirs)
    report.rows.append(theirs)
