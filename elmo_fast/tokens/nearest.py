"""The tokens of a corpus whose vectors, in context, lie nearest to one token's."""

import functools
import heapq
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.modules import BiLM
from elmo_fast.modules.layers import Layers, layer_numbers
from elmo_fast.modules.sentence_vectors import embed_batch, embed_batches
from elmo_fast.progress import Progress
from elmo_fast.text import read_sentences
from elmo_fast.tokens.corpus_cache import CorpusLines, search_cache

Floats = npt.NDArray[np.float32]


class NearestToken(NamedTuple):
    """A token of a corpus and how near it is."""

    cosine: float
    """of its vector and the query's"""
    line: int
    """which line of the corpus, from 0"""
    place: int
    """which token of the line, from 0"""
    tokens: Sequence[str]
    """all tokens of the line"""


def nearest_tokens(
    bilm: BiLM,
    corpus: str | os.PathLike[str],
    query: Sequence[str],
    index: int,
    *,
    topn: int = 10,
    layers: Layers = "top",
    cache: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    progress: Progress | None = None,
) -> dict[str, list[NearestToken]]:
    """For each layer the tokens of a corpus nearest to one token of a sentence, by the cosine of their vectors.

    Every sentence starts from a state of zeros, whatever `bilm.stateful`.

    Args:
        bilm: the model, on any device.
        corpus: text, one sentence per line, tokens separated by white space, plain or .gz; lines without tokens are
            left out.
        query: a tokenised sentence.
        index: which of its tokens, from 0.
        topn: how many to find, nearest first, of equal ones the earlier.
        layers: "top", "average" of all, "all" (a list for each), a number from 0, or several.
        cache: file for the corpus's vectors; the first query writes it, later ones read it in place of running the
            model: 4 bytes x tokens x width a layer. A damaged one is written anew, with a warning; one of another
            corpus, model, precision or other layers is refused.
        batch_size, max_tokens: most sentences, and most tokens with their padding, in a batch; as in
            ElmoEmbedder.embed_file.
        progress: called after each batch with the tokens done and all tokens.

    Returns: the name of each layer ("average", or its number) -> its nearest tokens.

    Raises: ElmoFastError: no such token, no such layer, a corpus without tokens, a cache of something else, no room
        for it; OSError.
    """
    check_query(query, index, topn)
    numbers = layer_numbers(layers, bilm.num_layers)
    names = ["average"] if numbers is None else [str(number) for number in numbers]
    lengths = {line: len(tokens) for line, tokens in read_sentences(corpus) if tokens}
    if not lengths:
        raise ElmoFastError(f"corpus {os.fspath(corpus)} must have at least one token; every line is blank")
    wanted = _unit(embed_batch(bilm, [query], layers)[0])[:, index]
    settings = {"batch_size": batch_size, "max_tokens": max_tokens}
    embed = functools.partial(_embedded, bilm, corpus, layers, sum(lengths.values()), progress, settings)
    if cache is None:
        found = _search(embed(), wanted, topn)
    else:
        text = CorpusLines(os.fspath(corpus), list(lengths), list(lengths.values()))
        made = ((line, vectors) for line, _, vectors in embed())
        found = _in_corpus(text, search_cache(cache, text, bilm, names, made, wanted, topn))
    return dict(zip(names, found, strict=True))


def check_query(query: Sequence[str], index: int, topn: int) -> None:
    """Raises ElmoFastError for an index that is no token's of the query, or topn below 1."""
    not_a_string(query, "query", "a list of words")
    if not 0 <= index < len(query):
        places = " ".join(f"{i}:{token}" for i, token in enumerate(query)) or "none"
        raise ElmoFastError(f"index must be the place of a token of the query ({places}); got {index}")
    check_counts(topn=topn)


def _unit(vectors: Floats) -> Floats:
    """Each vector scaled to length 1; zeros stay."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def _embedded(
    bilm: BiLM,
    corpus: str | os.PathLike[str],
    layers: Layers,
    total: int,
    progress: Progress | None,
    settings: dict[str, Any],
) -> Iterator[tuple[int, Sequence[str], Floats]]:
    """(line, tokens, unit vectors [K, n, 2D]) of each sentence of the corpus that has tokens, in any order."""
    lines: list[int] = []

    def sentences() -> Iterator[list[str]]:
        for line, tokens in read_sentences(corpus):
            if tokens:
                lines.append(line)
                yield tokens

    done = 0
    for batch in embed_batches(bilm, sentences(), layers, name=lambda i: f"line {lines[i] + 1}", **settings):
        for index, tokens, vectors in zip(*batch, strict=True):
            yield lines[index], tokens, _unit(vectors)
        done += sum(map(len, batch.sentences))
        del batch, vectors  # or they would stay in memory while the next batch runs
        if progress is not None:
            progress(done, total)


def _search(
    embedded: Iterator[tuple[int, Sequence[str], Floats]], wanted: Floats, topn: int
) -> list[list[NearestToken]]:
    """The nearest tokens for each layer; at most `topn` are kept in memory. wanted: [K, 2D]"""
    heaps: list[list[tuple[float, int, int, Sequence[str]]]] = [[] for _ in wanted]
    for line, tokens, vectors in embedded:
        cosines = np.einsum("ltd,ld->lt", vectors, wanted)
        for heap, of_layer in zip(heaps, cosines, strict=True):
            for place in np.argsort(-of_layer, kind="stable")[:topn]:
                item = (float(of_layer[place]), -line, -int(place), tokens)
                if len(heap) < topn:
                    heapq.heappush(heap, item)
                elif item[:3] > heap[0][:3]:
                    heapq.heapreplace(heap, item)
                else:
                    break
    ordered = [sorted(heap, key=lambda item: item[:3], reverse=True) for heap in heaps]
    return [[NearestToken(c, -line, -place, tokens) for c, line, place, tokens in heap] for heap in ordered]


def _in_corpus(text: CorpusLines, found: Sequence[Any]) -> list[list[NearestToken]]:
    """found: of each layer the Nearest among all tokens."""
    starts = np.cumsum([0, *text.lengths])
    at = [np.searchsorted(starts, part.rows[0], side="right") - 1 for part in found]
    lines = {text.lines[sentence] for sentences in at for sentence in sentences}
    tokens = {line: tokens for line, tokens in read_sentences(text.path) if line in lines}
    return [
        [
            NearestToken(float(cosine), text.lines[s], int(row - starts[s]), tokens[text.lines[s]])
            for cosine, row, s in zip(part.cosines[0], part.rows[0], sentences, strict=True)
        ]
        for part, sentences in zip(found, at, strict=True)
    ]
