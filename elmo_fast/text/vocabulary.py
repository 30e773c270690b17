"""Vocabulary files of bilm-tf: one word per line, the line's index its id."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from elmo_fast._io.atomic_file import writing
from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.text.characters import BOS_WORD, EOS_WORD
from elmo_fast.text.checks import checked_sentences
from elmo_fast.text.sentences import read_lines

UNK_WORD = "<UNK>"
MARKERS = (BOS_WORD, EOS_WORD, UNK_WORD)
# How texts mark words that were removed from them.
UNKNOWN_MARKS = (UNK_WORD, "<unk>", "<Unk>")
# A line of bilm-tf's published vocabularies that is not a word and has no id.
SKIPPED = "!!!MAXTERMID"


def read_words(path: str | os.PathLike[str]) -> list[str]:
    """Return the words of a file, one per line, for models that need no ids: a vocabulary, or a list without markers.

    !!!MAXTERMID is left out; blank lines and markers are not. Raises as read_lines, and ElmoFastError if no
    line is a word.
    """
    words = [line for _, line in read_lines(path) if line != SKIPPED]
    if not any(word and word not in MARKERS for word in words):
        raise ElmoFastError(f"{os.fspath(path)}: contains no words; give one word per line")
    return words


class Vocabulary:
    """Words and their ids, with <S>, </S> and <UNK> among them.

    words: the word of each id; a word that occurs twice has the id of its last position, as in bilm-tf
    bos, eos, unk: ids of <S>, </S> and <UNK>

    Raises ElmoFastError if one of the three is missing: bilm-tf then silently corrupts its last word.
    """

    def __init__(self, words: Iterable[str], source: str = "the vocabulary") -> None:
        not_a_string(words, "words", "a list of words (Vocabulary.read takes the path of a file)")
        self.words = [word for word in words if word != SKIPPED]
        self._ids = {word: i for i, word in enumerate(self.words)}
        missing = [marker for marker in MARKERS if marker not in self._ids]
        if missing:
            raise ElmoFastError(
                f"{source} lacks {', '.join(missing)}; a vocabulary contains <S>, </S> and <UNK>, each on its own "
                "line (`elmo-fast vocab` writes them first), at the positions they had when the model was trained"
            )
        self.bos, self.eos, self.unk = (self._ids[marker] for marker in MARKERS)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Vocabulary":
        """Read a vocabulary file: a line's index, not counting !!!MAXTERMID, is the id of its word."""
        return cls((line for _, line in read_lines(path)), source=os.fspath(path))

    @classmethod
    def build(cls, counts: Mapping[str, int], min_count: int = 1, max_size: int | None = None) -> "Vocabulary":
        """<S>, </S>, <UNK>, then the words of a corpus by decreasing count, then by code points.

        counts: how often each word occurs, from `count_words`
        min_count: words that occur less often are left out
        max_size: maximum number of lines, including the three markers
        """
        check_counts(min_count=min_count)
        if max_size is not None and max_size < len(MARKERS):
            raise ElmoFastError(f"max_size must be {len(MARKERS)} or more (this includes the markers); got {max_size}")
        frequent = [word for word, n in counts.items() if n >= min_count and word not in (*MARKERS, SKIPPED)]
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls([*MARKERS, *frequent][:max_size])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file that `read` reads back, gzip if its name ends in .gz.

        Raises ElmoFastError, and writes no file, if a word would not read back the same.
        """
        for word in self.words:
            if word != word.strip().encode("utf-8", "ignore").decode() or any(end in word for end in "\n\r\0"):
                raise ElmoFastError(f"the word {word!r} cannot be written on a line of UTF-8; remove or rename it")
        with writing(path) as file:
            file.write("".join(f"{word}\n" for word in self.words).encode("utf-8"))

    @property
    def digest(self) -> str:
        """The SHA-256 of the words in order, in hexadecimal."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def check(self, size: int, digest: str | None, name: str = "vocabulary") -> None:
        """Raise ElmoFastError unless these are the words that a model was trained with, in their order.

        size: their number; digest: their `digest`, None where the model does not say (older ones, and other formats);
        name: of the argument or the file, for the message.
        """
        wanted = f"{name} must have the {size:,} words that the model was trained with"
        if len(self) != size:
            raise ElmoFastError(f"{wanted}; got {len(self):,}")
        if digest is not None and digest != self.digest:
            raise ElmoFastError(f"{wanted}, in their order; got as many others; give the model's own vocab.txt")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """Return the id of `word`, or that of <UNK> if it is not in the vocabulary."""
        return self._ids.get(word, self.unk)

    def ids(self, words: Iterable[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the ids of `words`, [len(words)] int64, that of <UNK> for words outside the vocabulary."""
        not_a_string(words, "words", "a list of words (id takes one)")
        get, unk = self._ids.get, self.unk
        return np.array([get(word, unk) for word in words], np.int64)


def count_words(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """Count the words of tokenized sentences."""
    counts: Counter[str] = Counter()
    for sentence in checked_sentences(sentences):
        counts.update(sentence)
    return counts


def built_vocabulary(counts: Mapping[str, int], min_count: int, max_size: int | None) -> tuple[Vocabulary, str]:
    """Return the vocabulary of a text as `Vocabulary.build` builds it, and a line on its size and the words left out.

    counts: how often each distinct word of the text occurs. Raises ElmoFastError if every word is too rare.
    """
    vocabulary = Vocabulary.build(counts, min_count, max_size)
    distinct, most = len(counts), max(counts.values())
    if most < min_count:
        raise ElmoFastError(
            f"min_count {min_count}: no word of the text occurs so often (at most {most:,} times), and "
            "there is nothing to predict; give a smaller min_count, or more text"
        )
    left_out = [count for word, count in counts.items() if word not in vocabulary]
    limits = f"min_count {min_count}" + ("" if max_size is None else f", at most {max_size:,} entries")
    return vocabulary, (
        f"vocab  the softmax has {len(vocabulary):,} words ({limits}); {len(left_out):,} of {distinct:,} distinct "
        f"words, {sum(left_out) / sum(counts.values()):.1%} of the text, are left out and predicted as <UNK>"
    )


def unknown_hints(vocabulary: Vocabulary, count: Callable[[str], int], tokens: int) -> list[str]:
    """One line for each mark of unknown words that the text contains as a word of the vocabulary.

    count: how often a word of the vocabulary occurs in the text; tokens: total number of words in the text.
    """
    mark_counts = {mark: count(mark) for mark in UNKNOWN_MARKS if mark in vocabulary}
    outside, own = "a word outside the vocabulary", "a word of its own, besides <UNK>"
    return [
        f"HINT   the text contains {mark} {number:,} times ({number / tokens:.1%}), as if words had been removed: "
        f"it is read as letters and predicted as {outside if mark == UNK_WORD else own}; text with the original words "
        "is better"
        for mark, number in mark_counts.items()
        if number
    ]
