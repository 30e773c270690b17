"""The tokens of a text nearest to a token in context, cached for the next query."""

import functools
import itertools
import json
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast._docstrings import document
from elmo_fast._runtime.progress import Progress
from elmo_fast.embed.embedder import ElmoEmbedder
from elmo_fast.embed.layers import Layers, layer_names, unit_rows
from elmo_fast.embed.search import Nearest, Search, nearest
from elmo_fast.embed.sentence_index import SearchedText, cached_vectors, read_vectors
from elmo_fast.embed.sentence_vectors import run_batches
from elmo_fast.embed.token_files import check_room, writing_cache_folder
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules.bilm import BiLM
from elmo_fast.text import Source, check_words, checked_sentences
from elmo_fast.text.sources import TextFile

__all__ = ["NearestToken", "TextTokens", "in_context", "nearest_tokens"]
Floats = npt.NDArray[np.float32]


def in_context(
    tokens: Sequence[str], place: int, words: int, marks: tuple[str, str] = ("[", "]"), ellipsis: str = ""
) -> str:
    """Show the token at `place` between two marks, among up to `words` tokens to each side.

    ellipsis: stands for the tokens that are cut off.
    """
    start, end = max(0, place - words), place + 1 + words
    near = [*tokens[start:place], tokens[place].join(marks), *tokens[place + 1 : end]]
    return " ".join(filter(None, [ellipsis if start else "", *near, ellipsis if end < len(tokens) else ""]))


class TextTokens:
    """The vectors of every token of some sentences by one layer, less their mean, in the text's order.

    embedder: the biLM, without carried state; sentences: of one token at least; layer: its number, -1 for the last.
    vectors: [N, 2D] float32; mean: what was subtracted from each, [2D]; starts: each sentence's first token, and N.
    """

    def __init__(self, embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], layer: int = -1) -> None:
        self.sentences = list(checked_sentences(sentences))
        arrays = [array[layer] for array in embedder.embed_sentences(self.sentences)]
        self.starts = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
        everything = np.concatenate(arrays)
        self.mean: Floats = everything.mean(axis=0)
        self.vectors: Floats = everything - self.mean

    def where(self, index: int) -> tuple[int, int]:
        """Return (sentence, place in it) of the token whose vector is at `index`."""
        sentence = int(np.searchsorted(self.starts, index, side="right")) - 1
        return sentence, index - int(self.starts[sentence])

    def nearest(self, queries: Floats, topn: int) -> Nearest:
        """Find the tokens nearest to each query, [Q, 2D], from which the mean is subtracted too."""
        return nearest(self.vectors, queries - self.mean, min(topn, len(self.vectors)))


@document
class NearestToken(NamedTuple):
    """A token of a corpus and how near it is."""

    cosine: float
    """of its vector and the query's"""
    line: int
    """which line of the corpus (row of a table), from 0"""
    place: int
    """which token of the line, from 0"""
    tokens: Sequence[str]
    """all tokens of the sentence"""


def nearest_tokens(
    bilm: BiLM,
    corpus: str | os.PathLike[str] | Source,
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
    """Find, for each layer, the tokens of a corpus nearest to one token of a sentence, by the cosine of their vectors.

    Every sentence starts from a state of zeros, whatever `bilm.stateful`.

    Args:
        bilm: the model, on any device.
        corpus: text, one sentence per line, plain or .gz, split by the tokenizer of the model, or any
            `elmo_fast.text.Source`; sentences without tokens are left out.
        query: a tokenised sentence.
        index: which of its tokens, from 0.
        topn: how many to find, nearest first, of equal ones the earlier.
        layers: "top", "average" of all, "all" (a list for each), a number from 0, or several.
        cache: folder for the corpus's vectors; the first query writes it, later ones read it in place of running the
            model: 4 bytes x tokens x width a layer. A damaged one is written again, with a warning; one of a different
            corpus, model, precision or other layers is refused.
        batch_size, max_tokens: most sentences, and most tokens with their padding, in a batch; as in
            ElmoEmbedder.embed_file.
        progress: called after each batch with the tokens done and all tokens.

    Returns: the name of each layer ("average", or its number) -> its nearest tokens.

    Raises: ElmoFastError: no such token, no such layer, a corpus without tokens, a cache of something else, no room
        for it; OSError.
    """
    check_query(query, index, topn)
    text = SearchedText(corpus if isinstance(corpus, Source) else TextFile(corpus, tokenizer=bilm.options.tokenizer))
    names = layer_names(layers, bilm.num_layers)
    queries = unit_rows(next(run_batches(bilm, [query], layers)).vectors()[0])[:, index]  # [K, 2D]
    embed = functools.partial(text.embed, bilm, layers, batch_size=batch_size, max_tokens=max_tokens, progress=progress)
    searches = [Search(of_layer[None], topn) for of_layer in queries]
    if cache is None:

        def compare(sentence: int, of_layers: Floats) -> None:
            for search, rows in zip(searches, unit_rows(of_layers), strict=True):
                search.add(int(text.starts[sentence]), rows, unit=True)

        embed(compare)
    else:
        made_from = text.made_from(bilm, layers)
        if (read := cached_vectors(cache, made_from)) is None:
            shape = len(names), bilm.get_output_dim()
            check_room(cache, 4 * queries.size * int(text.starts[-1]))
            with writing_cache_folder(cache, text.lengths, *shape, json.dumps(made_from)) as write:
                embed(lambda sentence, of_layers: write(sentence, unit_rows(of_layers)))
            read = read_vectors(cache, made_from)
        file, stored = read
        for search, name in zip(searches, names, strict=True):
            search.add_all(file.embeddings[:, stored["layers"].index(name)], unit=True)
    results = [search.nearest() for search in searches]
    places = [(np.searchsorted(text.starts, near.rows[0], side="right") - 1).tolist() for near in results]
    needed = set(itertools.chain(*places))
    chosen = {number: each.tokens for number, each in enumerate(text.source.sentences()) if number in needed}
    return {
        name: [
            NearestToken(float(cosine), sentence, int(row - text.starts[sentence]), chosen[sentence])
            for cosine, row, sentence in zip(near.cosines[0], near.rows[0], sentences, strict=True)
        ]
        for name, near, sentences in zip(names, results, places, strict=True)
    }


def check_query(query: Sequence[str], index: int, topn: int) -> None:
    """Raise ElmoFastError for an index that is no token's of the query, or topn below 1."""
    check_words(query, "query")
    if not 0 <= index < len(query):
        places = " ".join(f"{i}:{token}" for i, token in enumerate(query)) or "none"
        raise ElmoFastError(f"index must be the place of a token of the query ({places}); got {index}")
    check_counts(topn=topn)
