"""The training text of static vectors: a text as numbers, and the words of these numbers."""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast.corpus import Corpus, is_prepared, open_corpus
from elmo_fast.corpus.pieces import LINE_END, numbered, numbering, pieces_matching
from elmo_fast.errors import ElmoFastError

Ids = npt.NDArray[np.int64]


class NumberedText(NamedTuple):
    """parts: the text, 0 between sentences and a number for each word, each [n] int32; counts: of each number;
    words: gives the words of some numbers; source: the name of the text in errors."""

    parts: list[Tensor]
    counts: Ids
    words: Callable[[Ids], list[str]]
    source: str


def numbered_text(text: str | os.PathLike[str] | Corpus | Iterable[Sequence[str]]) -> NumberedText:
    """The text of the files that match a pattern, of a corpus or prepared folder (read in place), or of sentences.

    Raises ElmoFastError and OSError as `elmo_fast.corpus.read_corpus` and `open_corpus`.
    """
    if isinstance(text, Corpus):
        return _of_corpus(text, "the corpus")
    if isinstance(text, str | os.PathLike):
        pattern = os.fspath(text)
        return _of_corpus(open_corpus(pattern), pattern) if is_prepared(pattern) else _of_files(pattern)
    return _of_sentences(text)


def ranked(text: NumberedText, min_count: int, max_size: int | None) -> Ids:
    """The numbers of the words with at least min_count occurrences, by falling count, then code points."""
    kept = 1 + np.flatnonzero(text.counts[1:] >= min_count)
    words, counts = text.words(kept), text.counts[kept].tolist()
    order = sorted(range(len(kept)), key=lambda i: (-counts[i], words[i]))
    return kept[order][:max_size]


def _of_corpus(corpus: Corpus, source: str) -> NumberedText:
    parts = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
    counts = np.concatenate([np.zeros(1, np.int64), corpus.counts.astype(np.int64)])
    return NumberedText(parts, counts, lambda numbers: corpus.types.words(numbers - 1), source)


def _of_files(pattern: str) -> NumberedText:
    numbers = numbering(LINE_END)
    with pieces_matching(pattern) as pieces:
        parts = [part.view(np.int32) for piece in pieces for part in numbered(piece, numbers)]
    if not parts:
        raise ElmoFastError(f"{pattern}: it contains no words; every line is blank")
    return _made(np.concatenate(parts), list(numbers), pattern)


def _of_sentences(sentences: Iterable[Sequence[str]]) -> NumberedText:
    numbers = numbering(None)
    ids = array("i", [0])
    for sentence in sentences:
        if isinstance(sentence, str):
            raise ElmoFastError(f"a sentence must be a list of words; got the string {sentence[:40]!r}")
        ids.extend([numbers[word] for word in sentence])
        ids.append(0)
    return _made(np.frombuffer(ids, np.int32), list(numbers), "the sentences")


def _made(ids: npt.NDArray[np.int32], words: list[str], source: str) -> NumberedText:
    counts = np.bincount(ids, minlength=len(words))
    return NumberedText([torch.from_numpy(ids)], counts, lambda numbers: [words[i] for i in numbers.tolist()], source)
