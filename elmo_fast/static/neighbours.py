"""The words nearest to words, or to sums and differences of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elmo_fast.embed.layers import unit_rows
from elmo_fast.embed.search import nearest
from elmo_fast.embed.vector_text import Matrix
from elmo_fast.embed.word_vectors import Vectors
from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.text import check_words


def nearest_words(vectors: Vectors, words: Sequence[str], topn: int = 10) -> list[list[tuple[str, float]]]:
    """Find the `topn` words nearest to each of `words`, without that word, and their cosines: one list per word.

    Raises ElmoFastError for a word without a vector, topn below 1, and a string instead of a list.
    """
    not_a_string(words, "words", "a list of words")
    queries = [vectors.vector(word) for word in words]
    return _words_near(vectors, np.stack(queries), [{word} for word in words], topn) if queries else []


def most_similar(
    vectors: Vectors,
    positive: str | Sequence[str] | None = None,
    negative: str | Sequence[str] | None = None,
    topn: int = 10,
) -> list[tuple[str, float]]:
    """Find the `topn` words nearest to all words of `positive` and far from those of `negative`, and their cosines.

        argmax over w of cos(w, sum of p/|p| - sum of n/|n|),    w none of the words given

    positive, negative: words, or a word; positive=["king", "woman"], negative=["man"] asks what is to woman as king is
        to man (3CosAdd)
    Raises ElmoFastError for a word without a vector, no words, and topn below 1.
    Source: the name, arguments and numbers of gensim's KeyedVectors.most_similar.
    """
    plus, minus = _as_words("positive", positive), _as_words("negative", negative)
    if not plus and not minus:
        raise ElmoFastError("most_similar: positive or negative must have at least one word; got none")
    unit = unit_rows(np.stack([vectors.vector(word) for word in [*plus, *minus]]))
    query = unit[: len(plus)].sum(0) - unit[len(plus) :].sum(0)
    return _words_near(vectors, query[None], [{*plus, *minus}], topn)[0]


def _as_words(name: str, value: Any) -> list[str]:
    words = [value] if isinstance(value, str) else [] if value is None else value
    check_words(words, f"most_similar: {name}", "a word or a list of words")
    return list(words)


def _words_near(vectors: Vectors, queries: Matrix, without: list[set[str]], topn: int) -> list[list[tuple[str, float]]]:
    """Return the words nearest to each query, without those that it consists of."""
    check_counts(topn=topn)
    near, results = [], nearest(vectors.matrix, queries, topn + max(map(len, without)))
    for left_out, rows, cosines in zip(without, results.rows, results.cosines.tolist(), strict=True):
        pairs = zip([vectors.words[row] for row in rows], cosines, strict=True)
        near.append([pair for pair in pairs if pair[0] not in left_out][:topn])
    return near
