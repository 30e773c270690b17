"""Sentences to batches: in text order, or by length within windows, with the order restored afterwards."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from elmo_fast.errors import ElmoFastError
from elmo_fast.text.checks import check_sentences

Result = TypeVar("Result")


class SentenceBatch(NamedTuple):
    """Sentences that run together, and the position of each in the text."""

    indices: list[int]
    sentences: list[Sequence[str]]


def batches(
    sentences: Iterable[Sequence[str]],
    *,
    batch_size: int = 64,
    max_tokens: int | None = None,
    window: int = 0,
    padded: Callable[[int], int] = lambda length: length,
) -> Iterator[SentenceBatch]:
    """Split a stream of sentences into batches.

    batch_size: maximum number of sentences in a batch
    max_tokens: maximum number of tokens in a batch, including padding (sentences x longest); a longer sentence is a
        batch of its own
    padded: the number of tokens, padding included, with which a batch runs whose longest sentence has so many
    window: how many batches of sentences are sorted by length, longest first, before they are split; 0 keeps the order
        of the text, which a model that carries its state from batch to batch needs
    """
    for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise ElmoFastError(f"batches: {name} must be 1 or more; got {value}")
    if window < 0:
        raise ElmoFastError(f"batches: window must be 0 or more; got {window}")
    check_sentences(sentences)
    numbered = enumerate(sentences)
    if not window:
        yield from _cut(numbered, batch_size, max_tokens, padded)
        return
    while chunk := list(islice(numbered, min(window * batch_size, sys.maxsize))):
        chunk.sort(key=lambda pair: -len(pair[1]))
        yield from _cut(chunk, batch_size, max_tokens, padded)


def _cut(
    numbered: Iterable[tuple[int, Sequence[str]]],
    batch_size: int,
    max_tokens: int | None,
    padded: Callable[[int], int],
) -> Iterator[SentenceBatch]:
    batch, longest = SentenceBatch([], []), 0
    for index, sentence in numbered:
        longest = max(longest, padded(len(sentence)))
        count = len(batch.indices)
        if count and (count == batch_size or (max_tokens is not None and (count + 1) * longest > max_tokens)):
            yield batch
            batch, longest = SentenceBatch([], []), padded(len(sentence))
        batch.indices.append(index)
        batch.sentences.append(sentence)
    if batch.indices:
        yield batch


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield the results of (index, result) pairs in the order 0, 1, 2, ..., buffering those that come early."""
    waiting: dict[int, Result] = {}
    turn = 0
    for index, result in results:
        waiting[index] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1
    if waiting:
        raise ElmoFastError(f"in_order: the result of sentence {turn} is missing, but that of {min(waiting)} is there")
