"""Words to rows of ids, for whole batches at once: the interface of encoders' inputs, bytes, and lexicons.

A word is its UTF-8 bytes (surrogates dropped), truncated to C - 2, even inside a character. Raw ids: bytes 0-255 and
the markers below. A row is [BOW, bytes, EOW, PAD...]; the strings <S> and </S> are [BOW, BOS or EOS, EOW, PAD...].
Prediction ids are raw ids + 1, which leaves 0 for padding tokens. (bilm-tf: bilm/data.py; AllenNLP: elmo_indexer.py.)

ELMoForManyLangs has a lexicon of characters and one of words. A word is cut to its first C - 2 Unicode code points.
Its characters are [<eow>, characters, <bow>, <pad>...]: that code looks the two markers up under each other's names,
and its models were trained so. The words <bos> and <eos> are [<eow>, <bos> or <eos>, <bow>, <pad>...]. A character or
a (cut) word that its lexicon lacks is <oov>.
"""

import abc
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo_fast.errors import ElmoFastError, not_a_string, quoted
from elmo_fast.text.checks import check_sentences, checked_sentences, may_hold_words

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Rows = np.ndarray[Any, np.dtype[np.int64]]


class Spelling(abc.ABC):
    """Turns each word into a row of S ids; a row of zeros is a padding token, and no word.

    slots: S
    begin, end: the words that stand for the begin and the end of a sentence
    """

    slots: int
    begin: str
    end: str

    @abc.abstractmethod
    def rows(self, words: Sequence[str]) -> Rows:
        """Return the ids of each word, [len(words), S]. Raises AttributeError or TypeError for what is not a string."""

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> "Tensor":
        """Return the ids of a batch of tokenized sentences, [B, T, S] int64, zeros behind a sentence's words.

        Raises ElmoFastError when the batch or a sentence is a string instead of a list, or a word is not a string.
        """
        import torch

        rows, numbers = self.distinct(batch)
        return torch.from_numpy(np.take(rows, numbers, axis=0))

    def distinct(self, batch: Sequence[Sequence[str]], markers: bool = False) -> tuple[Rows, Rows]:
        """Return the ids of a padding token and of each distinct word [U, S], and the row of each word in them [B, T].

        rows[numbers] are the ids of `batch_to_ids`; markers: with begin and end of each sentence, numbers [B, T+2].
        Raises ElmoFastError as `batch_to_ids`.
        """
        check_sentences(batch, "batch")
        batch = list(batch)
        numbers: dict[str, int] = {}
        number = numbers.setdefault
        try:
            if not all(map(may_hold_words, batch)):
                raise TypeError
            whole = [[self.begin, *words, self.end] for words in batch] if markers else batch
            matrix = np.zeros((len(batch), max(map(len, whole), default=0)), np.int64)
            for i, sentence in enumerate(whole):
                matrix[i, : len(sentence)] = [number(word, len(numbers) + 1) for word in sentence]
            rows = self.rows(list(numbers))
            warn_of_decomposed(numbers)
        except (AttributeError, TypeError):
            for _ in checked_sentences(batch, "batch"):  # raises, naming the word
                pass
            raise
        ids = np.zeros((len(rows) + 1, self.slots), np.int64)
        ids[1:] = rows
        return ids, matrix


BOS, EOS, BOW, EOW, PAD = 256, 257, 258, 259, 260
BOS_WORD, EOS_WORD = "<S>", "</S>"
MAX_CHARACTERS = 50
RAW_CHARACTERS, PREDICTION_CHARACTERS = 261, 262

# Bytes that UTF-8 lacks store the markers and the padding, the raw ids from 256 on, in one byte each.
FIRST_MARKER = 0xF8
RAW_ID_OF_CODE = np.arange(256)
RAW_ID_OF_CODE[FIRST_MARKER : FIRST_MARKER + RAW_CHARACTERS - 256] = np.arange(256, RAW_CHARACTERS)


@dataclass(eq=False)
class TypeTable:
    """Words by their number, as bytes.

    data: concatenated UTF-8 bytes of all words, uint8; ends: where each word ends, [words] uint64.
    """

    data: np.ndarray[Any, np.dtype[np.uint8]]
    ends: np.ndarray[Any, np.dtype[np.uint64]]

    @classmethod
    def of(cls, words: Iterable[str]) -> "TypeTable":
        """Return the table of `words`, in order; surrogates, which UTF-8 cannot encode, are dropped."""
        not_a_string(words, "words", "a list of words")
        encoded = [word.encode("utf-8", "ignore") for word in words]
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths, dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.ends)

    def words(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the words of these numbers; None for all."""
        chosen = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"types are numbered from 0 to {len(self) - 1}; got {chosen.min()} to {chosen.max()}")
        starts = np.where(chosen > 0, self.ends[chosen - 1].astype(np.int64), 0)
        return [
            bytes(self.data[i:j]).decode() for i, j in zip(starts.tolist(), self.ends[chosen].tolist(), strict=True)
        ]

    def characters(self, max_characters: int, device: "torch.device | str" = "cpu") -> "Callable[[Tensor], Tensor]":
        """Return a function from numbers of types to their prediction ids (bytes + 1; padding slots 261), on a device.

        It takes int64 of any shape there, and returns int64 of this shape + [C], without waiting for the device.
        """
        import torch

        codes = torch.from_numpy(CharacterTable(self, max_characters).codes).to(device)
        id_of_code = torch.from_numpy(RAW_ID_OF_CODE + 1).to(device)

        def ids(types: "Tensor") -> "Tensor":
            rows = codes.index_select(0, types.reshape(-1))
            return id_of_code.index_select(0, rows.reshape(-1).int()).view(*types.shape, max_characters)

        return ids


class CharacterTable:
    """The characters of V words, from which ids are gathered: C bytes per word instead of 8 C.

    words: strings, or a table of them
    codes: [BOW, bytes, EOW, PAD...] of each word, [V, C] uint8; ids above 255 are stored from FIRST_MARKER on
    """

    def __init__(self, words: Iterable[str] | TypeTable, max_characters: int = MAX_CHARACTERS) -> None:
        if max_characters < 3:
            raise ElmoFastError(f"max_characters must be 3 or more (two mark a word's ends); got {max_characters}")
        types = words if isinstance(words, TypeTable) else TypeTable.of(words)
        data, bounds = types.data, np.concatenate([[0], types.ends.astype(np.int64)])
        bow, eow, pad = (FIRST_MARKER + marker - 256 for marker in (BOW, EOW, PAD))
        width, lengths, body = max_characters - 2, np.diff(bounds), data
        if (lengths > width).any():
            _warn_of_cut_words(types, lengths > width, f"{width} bytes of UTF-8")
            body = data[np.arange(len(data)) - np.repeat(bounds[:-1], lengths) < width]
            lengths = np.minimum(lengths, width)
        self.codes = np.full((len(types), max_characters), pad, np.uint8)
        self.codes[:, 0] = bow
        self.codes[:, 1:-1][np.arange(width) < lengths[:, None]] = body
        self.codes[np.arange(len(types)), lengths + 1] = eow
        for word, marker in ((BOS_WORD, BOS), (EOS_WORD, EOS)):
            same_length = np.flatnonzero(np.diff(bounds) == len(word))
            letters = data[bounds[same_length][:, None] + np.arange(len(word))]
            equal = same_length[(letters == np.frombuffer(word.encode(), np.uint8)).all(1)]
            self.codes[equal] = [bow, FIRST_MARKER + marker - 256, eow, *[pad] * (max_characters - 3)]

    def ids(self, n_characters: int = PREDICTION_CHARACTERS) -> Rows:
        """Return the character ids of all words, [V, C].

        n_characters: 261 for raw ids (as in training), 262 for prediction ids (raw + 1), as in options.json
        """
        if n_characters not in (RAW_CHARACTERS, PREDICTION_CHARACTERS):
            raise ElmoFastError(f"n_characters must be 261 (raw ids) or 262 (prediction ids); got {n_characters}")
        return (RAW_ID_OF_CODE + (n_characters - RAW_CHARACTERS))[self.codes]


_units_warned_of: set[str] = set()


def _warn_of_cut_words(words: TypeTable, is_cut: "np.ndarray[Any, np.dtype[np.bool_]]", limit: str) -> None:
    """Warn, once in a process, that many words are longer than the model reads: two, and one in a hundred."""
    if limit in _units_warned_of or is_cut.sum() < max(2, len(words) / 100):
        return
    _units_warned_of.add(limit)
    first = words.words([int(is_cut.argmax())])[0]
    warnings.warn(
        f"{is_cut.sum()} of {len(words)} different words are longer than {limit}, all that the model reads of a word, "
        f"such as {quoted(first)}: words that begin alike have one vector. Split them: --tokenizer basic for raw text "
        "(tokenizer=), a segmenter for Japanese, Thai and other text without spaces",
        stacklevel=4,
    )


def warn_of_decomposed(words: Iterable[str]) -> None:
    """Warn, once in a process, of words with combining marks that NFC composes; `words`: distinct ones."""
    if "NFC" in _units_warned_of or (text := "\n".join(words)).isascii() or unicodedata.is_normalized("NFC", text):
        return
    apart = [word for word in text.split("\n") if len(unicodedata.normalize("NFC", word)) < len(word)]
    if apart:
        _units_warned_of.add("NFC")
        warnings.warn(
            f"words whose combining marks Unicode's form NFC would compose: {len(apart)}, such as {quoted(apart[0])}; "
            "written composed, each is another word to the model. A tokenizer whose name ends in +nfc composes them "
            "(--tokenizer whitespace+nfc), and a model stores the one that it is trained with",
            stacklevel=4,
        )


def words_to_ids(words: Sequence[str], n_characters: int = RAW_CHARACTERS, max_characters: int = MAX_CHARACTERS) -> Any:
    """Return the character ids of each word: [len(words), C] int64, raw (261) or prediction (262)."""
    return CharacterTable(words, max_characters).ids(n_characters)


class ByteSpelling(Spelling):
    """bilm-tf's: the UTF-8 bytes of a word, cut at C - 2; S = C = max_characters."""

    begin, end = BOS_WORD, EOS_WORD

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self.slots = max_characters

    def rows(self, words: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return CharacterTable(words, self.slots).ids()


def batch_to_ids(batch: Sequence[Sequence[str]], max_characters: int = MAX_CHARACTERS) -> "Tensor":
    """Convert tokenized sentences to character ids, as AllenNLP's function of the same name does.

    batch: sentences, each a list of words; no sentence markers are added
    returns: ids, [B, T, C] int64 with T the longest sentence; padding tokens are all zero

    Raises ElmoFastError when the batch or a sentence is a string instead of a list, or a word is not a string.
    """
    return ByteSpelling(max_characters).batch_to_ids(batch)


BEGIN, END, UNKNOWN, PADDING = "<bos>", "<eos>", "<oov>", "<pad>"
WORD_BEGIN, WORD_END = "<eow>", "<bow>"


class LexiconSpelling(Spelling):
    """C ids of characters + 1, then the id of the word + 1; S = C + 1.

    characters, words: the entries of each lexicon, whose indices are their ids. Without characters C = 0; without words
        the last id is 0.
    longest: how many code points of a word count, C - 2 with characters; None: all
    """

    begin, end = BEGIN, END

    def __init__(self, characters: Sequence[str], words: Sequence[str], longest: int | None) -> None:
        self._characters = {entry: place for place, entry in enumerate(characters, 1)}
        self._words = {entry: place for place, entry in enumerate(words, 1)}
        self._longest = longest
        self.slots = longest + 3 if characters and longest is not None else 1

    def rows(self, words: Sequence[str]) -> Rows:
        for word in words:
            if not isinstance(word, str):
                raise TypeError
        cut = [word[: self._longest] for word in words]
        if cut != list(words):
            is_cut = np.array([len(word) > len(begin) for word, begin in zip(words, cut, strict=True)])
            _warn_of_cut_words(TypeTable.of(words), is_cut, f"{self._longest} characters")
        ids = np.zeros((len(cut), self.slots), np.int64)
        if self._characters:
            ids[:, :-1] = self._characters[PADDING]
            known, unknown = self._characters, self._characters[UNKNOWN]
            for row, word in zip(ids, cut, strict=True):
                letters = [known[word]] if word in (BEGIN, END) else [known.get(letter, unknown) for letter in word]
                row[: len(letters) + 2] = [known[WORD_BEGIN], *letters, known[WORD_END]]
        if self._words:
            ids[:, -1] = [self._words.get(word, self._words[UNKNOWN]) for word in cut]
        return ids
