"""Words to character ids (`batch_to_ids`), text to ids (`vocab`, `prepare`), ids to batches (`corpus.Stream`)."""

import functools
import pathlib

import numpy as np
import pytest
import torch

from elmo_fast import batch_to_ids
from elmo_fast.corpus import Stream, count_words_of, open_corpus, prepare, read_corpus
from elmo_fast.corpus.streams import Epoch
from elmo_fast.ops import explain, gather_runs
from elmo_fast.text import Vocabulary

LINES, QUICK_LINES, STEPS = 200_000, 2000, 20
GATHERED = 20_000  # sentences


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
def prepared(many_lines, quick, tmp_path_factory):
    """(the text's file, its words, the prepared corpus)"""
    folder, text = tmp_path_factory.mktemp("corpus"), many_lines(QUICK_LINES if quick else LINES)
    text.write(folder / "text.txt")
    prepare(str(folder / "text.txt"), folder / "prepared", processes=1)
    return folder / "text.txt", sum(map(len, text.sentences)), open_corpus(folder / "prepared")


@pytest.mark.case("corpus")
@pytest.mark.turns(7)
@pytest.mark.parametrize("side", ["vocab", "prepare"])
def bench_text_to_ids(timed, prepared, side, tmp_path):
    source, words, _ = prepared
    calls = {
        "vocab": lambda: Vocabulary.build(count_words_of(str(source), 1)),
        "prepare": lambda: prepare(str(source), pathlib.Path(tmp_path, "out"), processes=1, overwrite=True),
    }
    timed("text to ids", calls[side], amount=words, unit="words/s")


@functools.cache
def stream(corpus, count):
    return Stream(corpus, count, STEPS, seed=0)


@pytest.fixture(scope="module")
def corpora(prepared):
    source, _, mapped = prepared
    return {"in memory": read_corpus(str(source), mapped.vocabulary), "from files": mapped}


@pytest.mark.case("corpus")
@pytest.mark.turns(20)
@pytest.mark.parametrize("count", [128, 1024])
@pytest.mark.parametrize("side", ["in memory", "from files"])
def bench_batches(timed, corpora, count, side, turn):
    """A whole epoch; a token is read in both directions."""
    batches = stream(corpora[side], count)

    def read():
        for step in range(batches.steps_per_epoch):
            batches.batch(turn, step)

    timed(f"batches of {count} x {STEPS}", read, amount=corpora[side].positions, unit="tokens/s", warmup=0)


@pytest.mark.case("corpus")
@pytest.mark.turns(40)
@pytest.mark.parametrize("side", ["native", "reference"])
def bench_gather_runs(timed, prepared, side, turn):
    """Whole sentences in the order of an epoch, half of them backwards."""
    if side == "native" and explain("gather_runs", "cpu").backend != "native":
        pytest.skip("the extension is not built")
    corpus = prepared[2]
    shards = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
    order, count = Epoch(corpus, 0, 0), min(GATHERED, corpus.sentences // 4)
    begin = turn * count % (corpus.sentences - count)
    some = slice(begin, begin + count)
    first, lengths = (torch.from_numpy(each[some].copy()) for each in (order.begins, np.diff(order.bounds)))
    first[count // 2 :] += lengths[count // 2 :] - 1
    out = torch.empty(int(lengths.sum()), dtype=torch.int32)
    call = lambda: gather_runs(shards, first, lengths, count // 2, out=out, backend=side)  # noqa: E731
    timed("gather_runs, whole sentences", call, amount=len(out), unit="numbers/s", against="reference")
