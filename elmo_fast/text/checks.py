"""The one check of sentences that a caller passes: lists of words or, where a function splits text, strings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError, quoted

# What a sentence must be, for check_sentences and check_words and their errors.
TEXT, TEXT_OR_WORDS = "a string", "a string or a list of words"
WORDS = "a list of words (use text.split() to split at white space)"
_MISSING = ("NoneType", "NAType", "NaTType")  # None, and pandas' two; NaN is a float


def checked_sentences(
    sentences: Any,
    name: str = "sentences",
    split: Callable[[str], Sequence[str]] | None = None,
    *,
    texts_only: bool = False,
) -> Iterator[Sequence[str]]:
    """Return the words of each sentence, each checked when it is read.

    Args:
        sentences: any iterable that has an order and one sentence per item.
        name: the argument, for the errors.
        split: the function that splits a string into words; None refuses strings.
        texts_only: whether to refuse lists of words, with `split`.

    Raises: ElmoFastError, at once for what holds no sentences: a string, a table, a dictionary, a set, an array that
        does not have one dimension, a number; later for a sentence of another kind, such as None.
    """
    expected = TEXT if texts_only else WORDS if split is None else TEXT_OR_WORDS
    check_sentences(sentences, name, expected)

    def each() -> Iterator[Sequence[str]]:
        for index, sentence in enumerate(sentences):
            if isinstance(sentence, str) and split is not None:
                yield split(sentence)
                continue
            check_words(sentence, f"{name}[{index}]", expected)
            yield sentence

    return each()


def check_sentences(sentences: Any, name: str = "sentences", expected: str = WORDS) -> None:
    """Raise ElmoFastError unless `sentences` is an iterable that has an order and one sentence per item."""
    if (
        isinstance(sentences, str | bytes | AbstractSet | Mapping)
        or not isinstance(sentences, Iterable)
        or getattr(sentences, "ndim", 1) != 1
        or hasattr(sentences, "columns")
    ):
        items = "strings" if expected == TEXT else f"sentences, each {expected}"
        raise ElmoFastError(f"{name} must be a list of {items}; got {_shown(sentences)}")


def may_hold_words(sentence: Any) -> bool:
    """Return whether this is a list, a tuple or an array, of whatever."""
    if isinstance(sentence, np.ndarray):
        return sentence.ndim == 1
    return isinstance(sentence, Sequence) and not isinstance(sentence, str | bytes)


def check_words(words: Any, name: str, expected: str = WORDS) -> None:
    """Raise ElmoFastError unless `words` is a list, a tuple or an array of strings; name: the argument."""
    if expected == TEXT or not may_hold_words(words):
        raise ElmoFastError(f"{name} must be {expected}; got {_shown(words)}")
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise ElmoFastError(f"{name}[{place}] must be a word (a string); got {_shown(word)}")


def _shown(value: Any) -> str:
    """Return the value as an error names it, with what to pass in its place."""
    if isinstance(value, str):
        return f"the string {quoted(value)}, which would be read letter by letter"
    if isinstance(value, bytes):
        return f"{quoted(value)}: decode bytes, value.decode()"
    if hasattr(value, "columns") or isinstance(value, Mapping):
        return "a table: pass one column, table[NAME]"
    if isinstance(value, AbstractSet):
        return "a set, which has no order: pass a list"
    if type(value).__name__ in _MISSING or (isinstance(value, float) and value != value):
        return f'{value!r} (of a pandas column, fillna("") makes missing sentences empty)'
    if isinstance(value, np.ndarray) and value.ndim != 1:
        advice = ": pass one column, array[:, 0], or array.tolist() for lists of words" if value.ndim == 2 else ""
        return f"an array of shape {list(value.shape)}{advice}"
    return f"{quoted(value)}"
