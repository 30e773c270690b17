"""Text as numbers: encoded corpora in memory or in a folder, and the streams that models read.

Names are loaded on first use; only the streams need torch.

A type is a distinct word; docs/pretraining.md describes how types are numbered and how a text is stored and read.
"""

from typing import TYPE_CHECKING

from elmo_fast._lazy import lazy

if TYPE_CHECKING:
    from elmo_fast.corpus.encoding import Corpus, TypeTable, encode, read_corpus
    from elmo_fast.corpus.folder import open_corpus, prepare
    from elmo_fast.corpus.pieces import is_prepared
    from elmo_fast.corpus.streams import DistinctWords, Stream, StreamBatch
    from elmo_fast.corpus.word_counts import count_words_of

__all__ = [
    "Corpus",
    "DistinctWords",
    "Stream",
    "StreamBatch",
    "TypeTable",
    "count_words_of",
    "encode",
    "is_prepared",
    "open_corpus",
    "prepare",
    "read_corpus",
]
_MODULES = {
    "streams": ("DistinctWords", "Stream", "StreamBatch"),
    "encoding": ("Corpus", "TypeTable", "encode", "read_corpus"),
    "word_counts": ("count_words_of",),
    "pieces": ("is_prepared",),
    "folder": ("open_corpus", "prepare"),
}
__getattr__, __dir__ = lazy("elmo_fast.corpus", _MODULES)
