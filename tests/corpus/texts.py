"""Small texts for hypothesis, corpora of them in several forms, and what a stream shows, in words."""

import dataclasses

import hypothesis.strategies as st
import numpy as np

from elmo_fast.text import Vocabulary

# Words a and b are in the vocabulary, the strings of the markers too; c, d and the rest are not.
WORDS = st.sampled_from(["a", "b", "c", "d", "<S>", "</S>", "<UNK>", "é", "zzz"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=7), min_size=1, max_size=12)
VOCABULARY = Vocabulary(["b", "</S>", "<S>", "a", "<UNK>"])


def resharded(corpus, cuts):
    """The same corpus with a new shard from each of the sentences `cuts` on."""
    cuts = sorted({cut for cut in cuts if 0 < cut < corpus.sentences})
    (shard,), (starts,) = corpus.shards, corpus.starts
    bounds = [0, *cuts, corpus.sentences]
    ends = [*starts[cuts].tolist(), len(shard) - 1]
    pieces, begins = [], []
    for first, last, end in zip(bounds[:-1], bounds[1:], ends, strict=True):
        begin = int(starts[first])
        pieces.append(shard[begin : end + 1].copy())
        begins.append(starts[first:last] - np.uint64(begin))
    return dataclasses.replace(corpus, shards=pieces, starts=begins)


def spoken(corpus, types):
    """The words of a tensor of types, as nested lists."""
    words = np.array(corpus.types.words(), object)
    return words[types.numpy()].tolist()


def known(word):
    """Return the predictions for a word."""
    return word if word in VOCABULARY else "<UNK>"


def pairs(corpus, stream, epoch=0):
    """Per direction and row, in reading order: the (input, target) words that are filled, over an epoch."""
    shown = [[[] for _ in range(len(stream.batch(epoch, 0).filled))] for _ in range(2)]
    for step in range(stream.steps_per_epoch):
        batch = stream.batch(epoch, step)
        types, targets = spoken(corpus, batch.types), spoken(corpus, batch.targets)
        for way in range(2):
            for row, filled in enumerate(batch.filled):
                shown[way][row] += list(zip(types[way][row][:filled], targets[way][row][:filled], strict=True))
    return shown
