"""Words to ids of a lexicon of characters and of a lexicon of words, as ELMoForManyLangs has them.

A word is cut to its first C - 2 Unicode code points. Its characters are [<eow>, characters, <bow>, <pad>...]: that code
looks the two markers up under each other's names, and its models were trained so. The words <bos> and <eos> are
[<eow>, <bos> or <eos>, <bow>, <pad>...]. A character or a (cut) word that its lexicon lacks is <oov>.
"""

from collections.abc import Sequence

import numpy as np

from elmo_fast.text.spelling import Rows, Spelling

BEGIN, END, UNKNOWN, PADDING = "<bos>", "<eos>", "<oov>", "<pad>"
WORD_BEGIN, WORD_END = "<eow>", "<bow>"


class LexiconSpelling(Spelling):
    """C ids of characters + 1, then the id of the word + 1; S = C + 1.

    characters, words: the entries of each lexicon, whose places are their ids; empty: none. Without characters C = 0;
        without words the last id is 0.
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
        ids = np.zeros((len(cut), self.slots), np.int64)
        if self._characters:
            ids[:, :-1] = self._characters[PADDING]
            for row, word in zip(ids, cut, strict=True):
                spelled = self._spelled(word)
                row[: len(spelled)] = spelled
        if self._words:
            unknown = self._words[UNKNOWN]
            ids[:, -1] = [self._words.get(word, unknown) for word in cut]
        return ids

    def _spelled(self, word: str) -> list[int]:
        known, unknown = self._characters, self._characters[UNKNOWN]
        letters = [known[word]] if word in (BEGIN, END) else [known.get(letter, unknown) for letter in word]
        return [known[WORD_BEGIN], *letters, known[WORD_END]]
