"""Words of a labelled text that carry two tags, and tokens of each: what nearest neighbours are asked about."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from elmo_fast.tasks import Example

RARE = 5
SHORTEST, LONGEST = 5, 30


class Token(NamedTuple):
    """Where a token stands, and its tag."""

    sentence: int
    place: int
    tag: str


def occurrences(examples: Sequence[Example]) -> dict[str, dict[str, list[Token]]]:
    """Word in small letters -> tag -> its tokens, in the text's order."""
    found: dict[str, dict[str, list[Token]]] = defaultdict(lambda: defaultdict(list))
    for number, example in enumerate(examples):
        for place, (word, tag) in enumerate(zip(example.words, example.labels, strict=True)):
            found[word.lower()][tag].append(Token(number, place, tag))
    return found


def ambiguous(found: dict[str, dict[str, list[Token]]], count: int) -> list[str]:
    """The `count` words of letters whose second most frequent tag is the most frequent."""
    second = {
        word: Counter({tag: len(tokens) for tag, tokens in tags.items()}).most_common(2)[1][1]
        for word, tags in found.items()
        if len(tags) > 1 and word.isalpha() and len(word) > 2
    }
    ranked = sorted((-number, word) for word, number in second.items() if number >= RARE)
    return [word for _, word in ranked[:count]]


def two_senses(word: str, found: dict[str, dict[str, list[Token]]], examples: Sequence[Example]) -> list[Token]:
    """A token of each of the word's two most frequent tags, in sentences that can be read at a glance.

    word: one of `found`, in small letters
    """
    tags = sorted(found[word].values(), key=len, reverse=True)[:2]
    return [_readable(tokens, examples) for tokens in tags]


def _readable(tokens: list[Token], examples: Sequence[Example]) -> Token:
    short = [token for token in tokens if SHORTEST <= len(examples[token.sentence].words) <= LONGEST]
    return (short or tokens)[0]
