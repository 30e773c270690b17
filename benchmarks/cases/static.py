"""Static vectors: counting pairs of words, GloVe's training, text of vectors written and read."""

import os
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, Row, faster, measure
from benchmarks.timing import rate, seconds
from elmo_fast.static import Vectors, load_vectors, save_vectors
from elmo_fast.static._numbered_text import numbered_text, ranked
from elmo_fast.static.cooccurrences import BOUNDARY, LEFT_OUT, Cooccurrences, cooccurrences
from elmo_fast.static.glove import GloveWeights, glove_

DIMENSION, WINDOW = 100, 10
# What GloVe's published program (commit 52f7dbc) did on two cores of a machine like this one; no rival of this run.
PUBLISHED = (
    "GloVe's C program, measured elsewhere at these settings: 0.54 M words/s counted, 1.0 M entries/s on 2 threads"
)


def on_threads(threads: int, amount: int, call: Callable[[], object]) -> Callable[[], float]:
    """A measurement of the rate of `call` on so many of torch's threads."""

    def per_second() -> float:
        torch.set_num_threads(threads)
        try:
            return amount / seconds(call)
        finally:
            torch.set_num_threads(1)

    return per_second


def on_one_and_two(variant: str, amount: int, call: Callable[[], object], rounds: int, unit: str) -> list[Row]:
    """Rows of ours on one thread and on two."""
    rows = measure(variant, {n: on_threads(n, amount, call) for n in (1, 2)}, rounds, unit=unit)
    for each in rows:
        each.threads, each.side = each.side, "elmo_fast"
    return rows


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

    count = lambda: cooccurrences(text.parts, table, len(kept), window=WINDOW)  # noqa: E731
    report.rows += on_one_and_two("counting", tokens, count, rounds, "words/s")
    return count(), len(kept)


def training(report: Report, entries: Cooccurrences, num_words: int, rounds: int, most: int) -> None:
    """Entries per second, and the reference of one by one beside it."""
    order = torch.randperm(len(entries.rows))[:most]
    shuffled = [column[order] for column in entries]
    shapes = (num_words, DIMENSION), (num_words, DIMENSION), (num_words,), (num_words,)
    weights = GloveWeights(*((torch.rand(*shape) - 0.5) / DIMENSION for shape in shapes))
    squares = GloveWeights(*(torch.ones(*shape) for shape in shapes))

    def glove(count: int, threads: int, backend: str) -> Callable[[], float]:
        mine = [column[:count] for column in shuffled]
        return on_threads(threads, len(mine[0]), lambda: glove_(*mine, weights, squares, backend=backend))

    one, two = glove(most, 1, "native"), glove(most, 2, "native")
    sides = {"elmo_fast": one, "elmo_fast, two threads": two, "plain torch": glove(200, 1, "reference")}
    rows = measure("training", sides, rounds, unit="entries/s")
    rows[1].side, rows[1].threads = "elmo_fast", 2
    for ours in rows[:2]:
        faster(ours, rows[2])
    report.rows += rows


def reading(report: Report, rounds: int, rows: int) -> None:
    """Vectors of 300 dimensions per second, with their words, to and from a file, and gensim's reader beside it."""
    vectors = Vectors([f"word{i}" for i in range(rows)], torch.randn(rows, 300).numpy())
    with tempfile.TemporaryDirectory() as folder:
        path = os.fspath(pathlib.Path(folder) / "vectors.txt")

        calls = {
            "writing text": lambda: save_vectors(vectors, path, "word2vec-text"),
            "reading text": lambda: load_vectors(path, "word2vec-text", cache=False),
        }
        for what, call in calls.items():
            report.rows += on_one_and_two(what, rows, call, rounds, "vectors/s")
        gensim(report, path, rows, rounds)


def gensim(report: Report, path: str, rows: int, rounds: int) -> None:
    """gensim's reader, last; its rows are put beside ours."""
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        report.skipped.append("gensim is not installed")
        return
    side = {"gensim": rate(rows, lambda: KeyedVectors.load_word2vec_format(path))}
    (theirs,) = measure("reading text", side, min(rounds, 3), unit="vectors/s")
    for ours in report.rows[-2:]:
        faster(ours, theirs)
    report.rows.append(theirs)
