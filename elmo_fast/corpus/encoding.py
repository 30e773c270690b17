"""Encoded text: one number per distinct word, which serves both as characters to read and as a word to predict."""

import hashlib
import pathlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus._format import State
from elmo_fast.corpus.pieces import LINE_END, Ids, numbered, numbering, pieces_matching
from elmo_fast.corpus.type_table import TypeTable
from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.text import Vocabulary, unknown_hints

Places = npt.NDArray[np.int64]
FORM = 1
# Types must fit into what torch can index by, as `type + 1`.
MOST_TYPES = 2**31 - 2


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences as numbers: 0 a boundary, `type + 1` a word; a type is a distinct word, the vocabulary's come first.

    types: all distinct words; vocabulary: those that are predicted, types 0 .. V-1; shards: the sentences, a boundary
    before each and one at the end of each shard, uint32; starts: where the boundary before each sentence stands in its
    shard, uint64; counts: how often each type occurs, uint64; fingerprint: equal for equal vocabulary, types and
    sentences, however they are stored; files: those that are read while the corpus is in use, as they were opened.
    """

    types: TypeTable
    vocabulary: Vocabulary
    shards: Sequence[Ids]
    starts: Sequence[npt.NDArray[np.uint64]]
    counts: npt.NDArray[np.uint64]
    fingerprint: str
    files: Mapping[pathlib.Path, State] = field(default_factory=dict)

    @property
    def hints(self) -> list[str]:
        """Lines for people on what is odd about the text, with this vocabulary."""
        return unknown_hints(self.vocabulary, lambda word: int(self.counts[self.vocabulary.id(word)]), self.tokens)

    @cached_property
    def sentences(self) -> int:
        return sum(map(len, self.starts))

    @cached_property
    def positions(self) -> int:
        """What each direction predicts in one epoch: every word and every sentence end."""
        return sum(map(len, self.shards)) - len(self.shards)

    @property
    def tokens(self) -> int:
        """Words, sentence ends not counted."""
        return self.positions - self.sentences

    @cached_property
    def unknown(self) -> int:
        """Words that are predicted as <UNK>."""
        return int(self.counts[len(self.vocabulary) :].sum() + self.counts[self.vocabulary.unk])

    @cached_property
    def offsets(self) -> Places:
        """Where each shard begins when all are laid end to end, and their length, [shards + 1]."""
        return np.cumsum([0, *map(len, self.shards)])

    @cached_property
    def _first_sentences(self) -> Places:
        return np.cumsum([0, *map(len, self.starts)])

    def check_unchanged(self) -> None:
        """Raises ElmoFastError when a file that is still read from is not the one that was opened.

        To read on past a file's new end would kill the process.
        """
        for path, state in self.files.items():
            if not path.exists() or State.of(path) != state:
                raise ElmoFastError(
                    f"{path} was replaced, changed or removed while it was in use; keep a prepared corpus as it is "
                    "while it is read, and start again"
                )

    def places(self, sentences: npt.NDArray[np.integer]) -> tuple[Places, Places]:
        """Of each sentence: where its boundary stands in the shards laid end to end, and its number of positions."""
        begins, ends = np.empty((2, len(sentences)), np.int64)
        parts: Iterable[tuple[int, Places | slice]] = [(0, slice(None))]
        if len(self.shards) > 1:
            parts = groups(np.searchsorted(self._first_sentences, sentences, side="right") - 1, len(self.shards))
        for shard, mine in parts:
            starts, local = self.starts[shard], sentences[mine] - self._first_sentences[shard]
            offset, last = self.offsets[shard], len(starts) - 1
            begins[mine] = starts[local].astype(np.int64) + offset
            following = starts[np.minimum(local + 1, last)].astype(np.int64)
            ends[mine] = np.where(local < last, following, len(self.shards[shard]) - 1) + offset
        return begins, ends - begins


def groups(keys: Places, count: int) -> Iterator[tuple[int, Places]]:
    """Each key below `count` that occurs, and where in `keys` it does, in their order."""
    order = np.argsort(keys.astype(np.uint32), kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(count + 1))
    for key in np.flatnonzero(np.diff(bounds)).tolist():
        yield key, order[bounds[key] : bounds[key + 1]]


def ranked(
    words: Sequence[str], counts: npt.NDArray[np.integer], vocabulary: Vocabulary
) -> tuple[TypeTable, npt.NDArray[np.uint64], Ids]:
    """The types of a text in their order, given its distinct words: the vocabulary, then by falling count, code points.

    words: each once; counts: how often they occur. Returns the types, the count of each, and the number `type + 1` of
    each word of `words`, after a 0 for the boundary.
    """
    outside = [i for i, word in enumerate(words) if word not in vocabulary]
    outside.sort(key=words.__getitem__)
    others = np.array(outside, np.int64)
    others = others[np.argsort(-counts[others].astype(np.int64), kind="stable")]
    count = len(vocabulary) + len(others)
    if count > MOST_TYPES:
        raise ElmoFastError(f"the text has {count:,} distinct words, and {MOST_TYPES:,} can be told apart")
    types = vocabulary.ids(words)
    types[others] = np.arange(len(vocabulary), count)
    type_counts = np.zeros(count, np.uint64)
    type_counts[types] = counts
    table = TypeTable.of([*vocabulary.words, *(words[i] for i in others.tolist())])
    return table, type_counts, np.concatenate(([0], types + 1)).astype(np.uint32)


def fingerprint_begun(types: TypeTable, vocabulary_size: int) -> "hashlib._Hash":
    """The digest of what decides on batches, but for the sentences: the types and how many of them are predicted."""
    digest = hashlib.sha256(f"elmo_fast corpus {FORM}, {vocabulary_size} of {len(types)} types\n".encode())
    digest.update(types.data.data)
    digest.update(types.ends.data)
    return digest


def _in_memory(numbers: dict[str, int], ids: Ids, vocabulary: Vocabulary) -> Corpus:
    """ids: a number of `numbers` per word, 0 before each sentence and at the end."""
    words = list(numbers)[1:]
    counts = np.bincount(ids, minlength=len(numbers))[1:]
    types, type_counts, renumbered = ranked(words, counts, vocabulary)
    shard = renumbered[ids]
    starts = np.flatnonzero(shard == 0)[:-1].astype(np.uint64)
    # Of several shards end to end the boundaries that two of them share would count once.
    fingerprint = fingerprint_begun(types, len(vocabulary))
    fingerprint.update(shard[:-1].data)
    return Corpus(types, vocabulary, (shard,), (starts,), type_counts, fingerprint.hexdigest())


def encode(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary) -> Corpus:
    """The corpus of tokenised sentences; those without words are left out."""
    numbers = numbering(None)
    ids = array("I", [0])
    not_a_string(sentences, "sentences", "a list of sentences, each a list of words")
    for sentence in sentences:
        not_a_string(sentence, "a sentence", "a list of words")
        if sentence:
            ids.extend([numbers[word] for word in sentence])
            ids.append(0)
    return _in_memory(numbers, np.frombuffer(ids, np.uint32), vocabulary)


def read_corpus(pattern: str, vocabulary: Vocabulary) -> Corpus:
    """Reads and encodes the files that `pattern` names: one sentence per line, tokens split by white space.

    pattern: a file, a glob, or a folder of text files.

    Raises ElmoFastError naming the file and line that cannot be read, or the pattern when all lines are blank.
    """
    numbers = numbering(LINE_END)
    with pieces_matching(pattern) as pieces:
        parts = [part for piece in pieces for part in numbered(piece, numbers)]
    if not parts:
        raise ElmoFastError(f"{pattern}: there is not one word in it; every line is blank")
    return _in_memory(numbers, np.concatenate([np.zeros(1, np.uint32), *parts]), vocabulary)
