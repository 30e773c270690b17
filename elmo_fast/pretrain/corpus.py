"""Encoded text: one id per distinct word, so that ids serve both as characters to read and as words to predict."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary, count_words, files_matching, read_sentences


@dataclass(frozen=True)
class Corpus:
    """Sentences as type ids. A type is a distinct word: the vocabulary's words come first, under their own ids.

    As in bilm-tf, a word outside the vocabulary is read by its own characters and only as a target becomes <UNK>.

    types: the words of the ids, <S> and </S> among them; ids: type of every token, all sentences end to end, int32;
    starts: where each sentence begins in `ids`, and their length at the end, [sentences + 1] int64;
    vocabulary_size: ids below this are words of the vocabulary; begin, end, unknown: the ids of <S>, </S> and <UNK>.
    """

    types: Sequence[str]
    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    vocabulary_size: int
    begin: int
    end: int
    unknown: int

    @property
    def sentences(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens(self) -> int:
        """Words, sentence ends not counted."""
        return len(self.ids)

    def sentence(self, index: int) -> npt.NDArray[np.int32]:
        """The type ids of one sentence, without markers."""
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def targets(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """What a model is to predict for these types: the word's id, or <UNK> outside the vocabulary."""
        return np.where(ids < self.vocabulary_size, ids, np.int32(self.unknown))


def encode(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary) -> Corpus:
    """Gives every distinct word its type id and keeps the sentences that have words."""
    types = list(vocabulary.words)
    type_of = {word: index for index, word in enumerate(types)}
    ids, starts = array("i"), array("q", [0])
    for sentence in sentences:
        if not sentence:
            continue
        for word in sentence:
            if word not in type_of:
                type_of[word] = len(types)
                types.append(word)
        ids.extend([type_of[word] for word in sentence])
        starts.append(len(ids))
    return Corpus(
        types=types,
        ids=np.frombuffer(ids, dtype=np.int32),
        starts=np.frombuffer(starts, dtype=np.int64),
        vocabulary_size=len(vocabulary),
        begin=vocabulary.bos,
        end=vocabulary.eos,
        unknown=vocabulary.unk,
    )


def sentences_of(pattern: str) -> Iterator[list[str]]:
    """The tokens of every line of the files that a glob matches, blank lines left out."""
    for path in files_matching(pattern):
        yield from (tokens for _, tokens in read_sentences(path) if tokens)


def read_corpus(pattern: str, vocabulary: Vocabulary) -> Corpus:
    """Reads and encodes the files that a glob matches: one sentence per line, tokens split by white space.

    Raises ElmoFastError naming the file and line that cannot be read, or the glob when all lines are blank.
    """
    paths = files_matching(pattern)
    corpus = encode(sentences_of(pattern), vocabulary)
    if corpus.tokens == 0:
        raise ElmoFastError(f"{pattern}: no words in {len(paths)} file(s); every line is blank")
    return corpus


def build_vocabulary(pattern: str, min_count: int, max_size: int | None) -> Vocabulary:
    """The vocabulary of the files that a glob matches: <S>, </S>, <UNK>, then words by falling count."""
    return Vocabulary.build(count_words(sentences_of(pattern)), min_count, max_size)
