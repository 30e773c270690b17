"""Words to character ids (`batch_to_ids`), text to ids (`vocab`, `prepare`), ids to batches (`corpus.Stream`)."""

import functools

import pytest

from elmo_fast import batch_to_ids
from elmo_fast.corpus import count_words_of, open_corpus, prepare, read_corpus
from elmo_fast.corpus.streams import Stream
from elmo_fast.text import Vocabulary

LINES, STEPS = 200_000, 20


@pytest.mark.turns(40)
@pytest.mark.parametrize("variant", ["running text", "every word different"])
def bench_batch_to_ids(timed, text, variant, turn):
    size = 200 if timed.quick else 1000
    first = turn * size % max(1, len(text.sentences) - size)
    batch = text.sentences[first : first + size]
    if variant != "running text":
        batch = [[f"{word}{i}_{j}" for j, word in enumerate(sentence)] for i, sentence in enumerate(batch)]
    timed.note("text", text.source)
    timed(f"batch_to_ids, {variant}", lambda: batch_to_ids(batch), amount=sum(map(len, batch)), unit="tokens/s")


@pytest.fixture(scope="module")
def prepared(text, quick, tmp_path_factory):
    """(the text's file, its words, the prepared corpus)"""
    folder, text = tmp_path_factory.mktemp("corpus"), text.repeated(2000 if quick else LINES)
    text.write(folder / "text.txt")
    prepare(str(folder / "text.txt"), folder / "prepared", processes=1)
    return folder / "text.txt", sum(map(len, text.sentences)), open_corpus(folder / "prepared")


@pytest.mark.case("corpus")
@pytest.mark.turns(7)
@pytest.mark.parametrize("side", ["vocab", "prepare"])
def bench_text_to_ids(timed, prepared, side, tmp_path):
    source, words, _ = prepared
    vocab = lambda: Vocabulary.build(count_words_of(str(source), 1))  # noqa: E731
    ids = lambda: prepare(str(source), tmp_path / "out", processes=1, overwrite=True)  # noqa: E731
    timed("text to ids", vocab if side == "vocab" else ids, amount=words, unit="words/s")


@pytest.fixture(scope="module")
def streams(prepared):
    """A cached function of (side, rows)."""
    source, _, mapped = prepared
    corpora = {"in memory": read_corpus(str(source), mapped.vocabulary), "from files": mapped}
    return functools.cache(lambda side, count: Stream(corpora[side], count, STEPS, seed=0))


@pytest.mark.case("corpus")
@pytest.mark.turns(20)
@pytest.mark.parametrize("count", [128, 1024])
@pytest.mark.parametrize("side", ["in memory", "from files"])
def bench_batches(timed, prepared, streams, count, side, turn):
    """A whole epoch; a token is read in both directions."""
    batches = streams(side, count)

    def read():
        for step in range(batches.steps_per_epoch):
            batches.batch(turn, step)

    timed(f"batches of {count} x {STEPS}", read, amount=prepared[2].positions, unit="tokens/s", warmup=0)
