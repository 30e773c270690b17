"""Text as numbers: encoded corpora in memory or in a folder, and the streams that models read.

Streams, which alone need torch, are in `elmo_fast.corpus.streams`.

A type is a distinct word; docs/pretraining.md describes how types are numbered and how a text is stored and read.
"""

from elmo_fast.corpus.encoding import Corpus, TypeTable, encode, read_corpus
from elmo_fast.corpus.folder import open_corpus, prepare
from elmo_fast.corpus.pieces import is_prepared
from elmo_fast.corpus.word_counts import count_words_of

__all__ = [
    "Corpus",
    "TypeTable",
    "count_words_of",
    "encode",
    "is_prepared",
    "open_corpus",
    "prepare",
    "read_corpus",
]
