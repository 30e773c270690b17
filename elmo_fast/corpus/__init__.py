"""Text as numbers: encoded corpora in memory or in a folder, and the streams that models read. Names are loaded on
first use; only the streams need torch.

A type is a distinct word; docs/pretraining.md describes how types are numbered and how a text is stored and read.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmo_fast.corpus._format import is_prepared
    from elmo_fast.corpus.encoding import Corpus, encode, read_corpus
    from elmo_fast.corpus.folder import open_corpus
    from elmo_fast.corpus.preparation import prepare
    from elmo_fast.corpus.streams import Batch, Stream
    from elmo_fast.corpus.type_table import TypeCharacters, TypeTable
    from elmo_fast.corpus.word_counts import count_words_of

_HOMES = {
    "Batch": "streams",
    "Corpus": "encoding",
    "Stream": "streams",
    "TypeCharacters": "type_table",
    "TypeTable": "type_table",
    "count_words_of": "word_counts",
    "encode": "encoding",
    "is_prepared": "_format",
    "open_corpus": "folder",
    "prepare": "preparation",
    "read_corpus": "encoding",
}
__all__ = [
    "Batch",
    "Corpus",
    "Stream",
    "TypeCharacters",
    "TypeTable",
    "count_words_of",
    "encode",
    "is_prepared",
    "open_corpus",
    "prepare",
    "read_corpus",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"elmo_fast.corpus.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'elmo_fast.corpus' has no attribute {name!r}; it has: {', '.join(__all__)}")
