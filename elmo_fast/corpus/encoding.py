"""Encoded text: one number per distinct word, used both for the characters to read and the word to predict."""

import hashlib
import pathlib
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Unpack

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus.pieces import LINE_END, Ids, numbered, numbering, pieces_matching
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Tokenizer
from elmo_fast.text import Vocabulary, checked_sentences, unknown_hints
from elmo_fast.text.characters import TypeTable, warn_of_decomposed
from elmo_fast.text.sources import Reading

Places = npt.NDArray[np.int64]
FORM = 1
# A vocabulary built for a text leaves less of it out.
MUCH_UNKNOWN = 0.2
# Types must fit into torch's index type, as `type + 1`.
MOST_TYPES = 2**31 - 2


def file_stamp(path: pathlib.Path) -> tuple[int, int, int]:
    """Return what identifies a file and its state: inode, size, time of its last change."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences as numbers: 0 a boundary, `type + 1` a word; a type is a distinct word, the vocabulary's come first.

    types: all distinct words; vocabulary: the predicted ones, types 0 .. V-1; shards: the sentences, a boundary before
    each and one at the end of each shard, uint32; starts: the position of each sentence's boundary in its shard,
    uint64; counts: how often each type occurs, uint64; fingerprint: equal for equal vocabulary, types and sentences,
    however they are stored; files: the files read while the corpus is in use, in their state when opened;
    tokenizer: what split the text, None for white space.
    """

    types: TypeTable
    vocabulary: Vocabulary
    shards: Sequence[Ids]
    starts: Sequence[npt.NDArray[np.uint64]]
    counts: npt.NDArray[np.uint64]
    fingerprint: str
    files: Mapping[pathlib.Path, tuple[int, int, int]] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None

    def check_unchanged(self) -> None:
        """Raise ElmoFastError if a file in use is no longer the one that was opened.

        Reading past the end of a file that was truncated would kill the process.
        """
        for path, state in self.files.items():
            if not path.exists() or file_stamp(path) != state:
                raise ElmoFastError(
                    f"{path} was replaced, changed or removed while in use; do not modify a prepared corpus while "
                    "it is read, and start again"
                )

    @property
    def hints(self) -> list[str]:
        """Hints for the user about oddities of the text with this vocabulary."""
        return unknown_hints(self.vocabulary, lambda word: int(self.counts[self.vocabulary.id(word)]), self.tokens)

    @cached_property
    def sentences(self) -> int:
        return sum(map(len, self.starts))

    @cached_property
    def positions(self) -> int:
        """The number of predictions per direction and epoch: every word and every sentence end."""
        return sum(map(len, self.shards)) - len(self.shards)

    @property
    def tokens(self) -> int:
        """The number of words, without sentence ends."""
        return self.positions - self.sentences

    @cached_property
    def unknown(self) -> int:
        """The number of words that are predicted as <UNK>."""
        return int(self.counts[len(self.vocabulary) :].sum() + self.counts[self.vocabulary.unk])

    @cached_property
    def offsets(self) -> Places:
        """Where each shard begins in their concatenation, and its length, [shards + 1]."""
        return np.cumsum([0, *map(len, self.shards)])

    def places(self, sentences: npt.NDArray[np.integer]) -> tuple[Places, Places]:
        """For each sentence: the position of its boundary in the concatenated shards, and its number of positions."""
        begins, ends = np.empty((2, len(sentences)), np.int64)
        first_sentences = np.cumsum([0, *map(len, self.starts)])
        shard_of = np.searchsorted(first_sentences, sentences, side="right") - 1
        for shard in range(len(self.shards)):
            rows = np.flatnonzero(shard_of == shard)
            starts, local = self.starts[shard], sentences[rows] - first_sentences[shard]
            offset, last = self.offsets[shard], len(starts) - 1
            begins[rows] = starts[local].astype(np.int64) + offset
            following = starts[np.minimum(local + 1, last)].astype(np.int64)
            ends[rows] = np.where(local < last, following, len(self.shards[shard]) - 1) + offset
        return begins, ends - begins

    def words(self, begin: int, positions: int) -> list[str]:
        """Return the words of a sentence, given what `places` says of it."""
        shard = int(np.searchsorted(self.offsets, begin, side="right")) - 1
        first = begin - int(self.offsets[shard]) + 1
        return self.types.words(self.shards[shard][first : first + positions - 1].astype(np.int64) - 1)


def ranked(
    words: Sequence[str], counts: npt.NDArray[np.integer], vocabulary: Vocabulary
) -> tuple[TypeTable, npt.NDArray[np.uint64], Ids]:
    """Order the types of a text: the vocabulary, then its other words by decreasing count, then by code points.

    words: distinct; counts: how often they occur. Returns the types, the count of each, and the number `type + 1` of
    each word of `words`, preceded by a 0 for the boundary.
    """
    warn_of_decomposed(words)
    outside = [i for i, word in enumerate(words) if word not in vocabulary]
    outside.sort(key=words.__getitem__)
    others = np.array(outside, np.int64)
    others = others[np.argsort(-counts[others].astype(np.int64), kind="stable")]
    count = len(vocabulary) + len(others)
    if count > MOST_TYPES:
        raise ElmoFastError(
            f"the text must have at most {MOST_TYPES:,} distinct words; got {count:,}; split the text, or replace its "
            "numbers and identifiers by a word"
        )
    types = vocabulary.ids(words)
    types[others] = np.arange(len(vocabulary), count)
    type_counts = np.zeros(count, np.uint64)
    type_counts[types] = counts
    table = TypeTable.of([*vocabulary.words, *(words[i] for i in others.tolist())])
    return table, type_counts, np.concatenate(([0], types + 1)).astype(np.uint32)


def fingerprint_begun(types: TypeTable, vocabulary_size: int) -> "hashlib._Hash":
    """Return the digest of everything that determines batches except the sentences.

    The types and how many are predicted.
    """
    digest = hashlib.sha256(f"elmo_fast corpus {FORM}, {vocabulary_size} of {len(types)} types\n".encode())
    digest.update(types.data.data)
    digest.update(types.ends.data)
    return digest


def _in_memory(numbers: dict[str, int], ids: Ids, vocabulary: Vocabulary, tokenizer: Tokenizer | None = None) -> Corpus:
    """ids: one of `numbers` per word, 0 before each sentence and at the end."""
    words = list(numbers)[1:]
    counts = np.bincount(ids, minlength=len(numbers))[1:]
    types, type_counts, renumbered = ranked(words, counts, vocabulary)
    shard = renumbered[ids]
    starts = np.flatnonzero(shard == 0)[:-1].astype(np.uint64)
    # In concatenated shards, a boundary shared by two of them would count once.
    fingerprint = fingerprint_begun(types, len(vocabulary))
    fingerprint.update(shard[:-1].data)
    return Corpus(types, vocabulary, (shard,), (starts,), type_counts, fingerprint.hexdigest(), tokenizer=tokenizer)


def heldout_line(heldout: Corpus, training: Corpus) -> str:
    """Return a line on what is held out of a text."""
    lines, words = heldout.sentences, heldout.tokens
    of = lines + training.sentences
    return f"text   {lines:,} of {of:,} lines ({lines / of:.2%}) are held out and do not train: {words:,} words"


def warn_of_unknown(corpus: Corpus, text: str = "text") -> None:
    """Warn if the vocabulary lacks much of the text; text: what the warning calls it."""
    unknown = corpus.unknown / max(corpus.tokens, 1)
    if unknown > MUCH_UNKNOWN:
        warnings.warn(
            f"{unknown:.1%} of the words of the {text} are outside the vocabulary and are predicted as <UNK>: "
            "perplexity will look low and say little; give a vocab_file with more of its words (elmo-fast vocab with a "
            "lower --min_count, or of more text)",
            stacklevel=3,
        )


def encode(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary) -> Corpus:
    """Return the corpus of tokenized sentences; empty sentences are skipped."""
    numbers = numbering(None)
    ids = array("I", [0])
    for sentence in checked_sentences(sentences):
        if len(sentence):
            ids.extend([numbers[word] for word in sentence])
            ids.append(0)
    return _in_memory(numbers, np.frombuffer(ids, np.uint32), vocabulary)


def read_corpus(
    pattern: str, vocabulary: Vocabulary, tokenizer: Tokenizer | None = None, **reading: Unpack[Reading]
) -> Corpus:
    """Read and encode the files that `pattern` names, one sentence per line, or per row of a table.

    pattern: a file, a glob, or a folder of files; tokenizer: one of TOKENIZERS, None for white space; reading:
    format_in, column and split of tables, as in `opened_source`.

    Raises ElmoFastError naming the file and line that cannot be read, or the pattern if all lines are blank.
    """
    numbers = numbering(LINE_END)
    with pieces_matching(pattern, **reading) as pieces:
        parts = [part for piece in pieces for part in numbered(piece, numbers, tokenizer)]
    if not parts:
        raise ElmoFastError(f"{pattern}: it contains no words; every line is blank")
    return _in_memory(numbers, np.concatenate([np.zeros(1, np.uint32), *parts]), vocabulary, tokenizer)
