"""Words of a labelled text that have two tags, and tokens of each, for the table of nearest neighbours."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from elmo_fast.tasks import Example

RARE = 5
SHORTEST, LONGEST = 5, 30


class Token(NamedTuple):
    """A token's position and tag."""

    sentence: int
    place: int
    tag: str


def occurrences(examples: Sequence[Example]) -> dict[str, dict[str, list[Token]]]:
    """Lower-case word -> tag -> its tokens, in text order."""
    found: dict[str, dict[str, list[Token]]] = defaultdict(lambda: defaultdict(list))
    for number, example in enumerate(examples):
        for place, (word, tag) in enumerate(zip(example.words, example.labels, strict=True)):
            found[word.lower()][tag].append(Token(number, place, tag))
    return found


def ambiguous(found: dict[str, dict[str, list[Token]]], count: int) -> list[str]:
    """The `count` alphabetic words whose second most frequent tag occurs most often."""
    second = {
        word: Counter({tag: len(tokens) for tag, tokens in tags.items()}).most_common(2)[1][1]
        for word, tags in found.items()
        if len(tags) > 1 and word.isalpha() and len(word) > 2
    }
    ranked = sorted((-number, word) for word, number in second.items() if number >= RARE)
    return [word for _, word in ranked[:count]]


def two_senses(word: str, found: dict[str, dict[str, list[Token]]], examples: Sequence[Example]) -> list[Token]:
    """A token of each of the word's two most frequent tags, in short sentences.

    word: one of `found`, in lower case
    """
    tags = sorted(found[word].values(), key=len, reverse=True)[:2]
    return [_readable(tokens, examples) for tokens in tags]


def _readable(tokens: list[Token], examples: Sequence[Example]) -> Token:
    short = [token for token in tokens if SHORTEST <= len(examples[token.sentence].words) <= LONGEST]
    return (short or tokens)[0]
