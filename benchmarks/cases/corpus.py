"""Text to numbers and numbers to batches, one thread: `elmo-fast vocab`, `elmo-fast prepare`, `corpus.Stream`; and
`ops.gather_runs`, of which batches are made."""

import functools
import itertools
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, Row, faster, measure
from benchmarks.timing import rate, seconds
from elmo_fast.corpus import Corpus, Stream, count_words_of, open_corpus, prepare, read_corpus
from elmo_fast.corpus.streams import SLAB, Epoch
from elmo_fast.ops import explain, gather_runs
from elmo_fast.text import Vocabulary

STEPS = 20


def run(settings: Settings) -> Report:
    """Rows "words/s" of the text, read once; rows "tokens/s" of batches, a token being read in both directions."""
    torch.set_num_threads(1)
    text = texts.many_lines(settings.text, 2000 if settings.quick else 200_000)
    with tempfile.TemporaryDirectory(prefix="elmo-fast-") as folder:
        source, out = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "prepared")
        text.write(source)
        words = sum(map(len, text.sentences))
        report = Report(notes={"text": text.source, "words": f"{words:,}"})

        sides = {
            "vocab": rate(words, lambda: Vocabulary.build(count_words_of(str(source), 1))),
            "prepare": rate(words, lambda: prepare(str(source), out, processes=1, overwrite=True)),
        }
        report.rows += measure("text to numbers", sides, 2 if settings.quick else 7, unit="words/s")
        mapped = open_corpus(out)
        report.rows += batches(
            {"in memory": read_corpus(str(source), mapped.vocabulary), "from files": mapped}, settings
        )
        report.rows += runs(mapped, settings)
    return report


def batches(corpora: dict[str, Corpus], settings: Settings) -> list[Row]:
    """Rows of the rate of batches in turn, a whole epoch at a time; the orders of sentences are drawn meanwhile."""
    rows = []
    for count in (128, 1024):
        epochs = itertools.count()

        def read(stream: Stream, epochs: Iterator[int] = epochs) -> None:
            epoch = next(epochs)
            for step in range(stream.steps_per_epoch):
                stream.batch(epoch, step)

        streams = {name: Stream(corpus, count, STEPS, seed=0) for name, corpus in corpora.items()}
        sides = {
            name: rate(stream.corpus.positions, functools.partial(read, stream)) for name, stream in streams.items()
        }
        rows += measure(f"batches of {count} x {STEPS}", sides, 2 if settings.quick else 20, unit="tokens/s")
    return rows


def runs(corpus: Corpus, settings: Settings) -> list[Row]:
    """Rows of the rate at which sentences are gathered in an order that was drawn, half of them backwards."""
    text = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
    order = Epoch(corpus, 0, 0)
    count = min(SLAB // (int(order.bounds[-1]) // corpus.sentences), corpus.sentences // 4)
    slabs = itertools.cycle(range(0, corpus.sentences - count, count))

    def gathered(backend: str) -> float:
        some = slice(begin := next(slabs), begin + count)
        first, lengths = (torch.from_numpy(each[some].copy()) for each in (order.begins, np.diff(order.bounds)))
        first[count // 2 :] += lengths[count // 2 :] - 1
        out = torch.empty(int(lengths.sum()), dtype=torch.int32)
        gather = lambda: gather_runs(text, first, lengths, count // 2, out=out, backend=backend)  # noqa: E731
        return len(out) / seconds(gather)

    names = dict.fromkeys([explain("gather_runs", "cpu").backend, "reference"])
    sides = {name: functools.partial(gathered, name) for name in names}
    rows = measure("gather_runs, whole sentences", sides, 4 if settings.quick else 60, unit="numbers/s")
    if len(rows) == 2:
        faster(*rows)
    return rows
