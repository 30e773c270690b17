"""The tokens of a text nearest to a token in context, cached for the next query; the sentences nearest to one."""

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from elmo_fast._docstrings import document
from elmo_fast._io.fields import parsed
from elmo_fast._runtime.progress import Progress
from elmo_fast.embed.embedder import ElmoEmbedder
from elmo_fast.embed.layers import Layers, layer_numbers, unit_rows
from elmo_fast.embed.layers import pool as pooled
from elmo_fast.embed.sentence_vectors import run_batches
from elmo_fast.embed.token_files import FlatFile, check_room, read_cache_folder, writing_cache_folder
from elmo_fast.errors import CheckpointError, ElmoFastError, check_counts
from elmo_fast.modules import BiLM
from elmo_fast.modules.bilm import model_digest
from elmo_fast.op_choices import Pool, Tokenizer
from elmo_fast.static.neighbours import Nearest, Search, nearest
from elmo_fast.text import Source, check_words, checked_sentences
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.sources import Sentence, TextFile
from elmo_fast.text.tokenizers import RAW_TEXT

__all__ = ["NearestSentence", "NearestToken", "TextTokens", "in_context", "nearest_sentences", "nearest_tokens"]
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


class _Corpus:
    """The sentences of a corpus that have words, read again at each use.

    corpus: a text file, which the tokenizer splits, or a Source. lengths: the words of each, by its number in the
    corpus; starts: each one's first word among all, and their number; sha256: of the words. Raises ElmoFastError if
    there is none.
    """

    def __init__(self, corpus: str | os.PathLike[str] | Source, tokenizer: str | None) -> None:
        self.source = corpus if isinstance(corpus, Source) else TextFile(corpus, tokenizer=tokenizer)
        self.lengths, digest = dict[int, int](), hashlib.sha256()
        for number, (tokens, _) in self.sentences():
            self.lengths[number] = len(tokens)
            digest.update(f"{chr(31).join(tokens)}\n".encode("utf-8", "surrogatepass"))
        if not self.lengths:
            name, unit = self.source.name, self.source.unit
            raise ElmoFastError(f"corpus {name} must have at least one token; every {unit} is blank")
        self.numbers, self.sha256 = list(self.lengths), digest.hexdigest()
        self.starts = np.cumsum([0, *self.lengths.values()])

    def sentences(self) -> Iterator[tuple[int, Sentence]]:
        """Yield (number, sentence) of each that has words."""
        return (pair for pair in enumerate(self.source.sentences()) if pair[1].tokens)

    def unit_vectors(
        self, bilm: BiLM, layers: Layers, progress: Progress | None, pool: Pool | None = None, **sizes: Any
    ) -> Iterator[tuple[int, Floats]]:
        """Yield each sentence's place among these and its tokens' unit vectors [K, n, 2D], pooled [K, 1, 2D].

        They come in any order. sizes: batch_size and max_tokens.
        """
        words, done = (sentence.tokens for _, sentence in self.sentences()), 0
        for batch in run_batches(bilm, words, layers, **sizes):
            for sentence, vectors in zip(batch.indices, batch.vectors(), strict=True):
                yield sentence, unit_rows(vectors if pool is None else pooled(vectors, pool)[:, None])
            done += sum(map(len, batch.sentences))
            del batch, vectors  # or they would stay in memory while the next batch runs
            if progress is not None:
                progress(done, int(self.starts[-1]))

    def chosen(self, places: Iterable[np.integer[Any]]) -> dict[int, Sentence]:
        """Read the sentences at these places, by number."""
        needed = {self.numbers[place] for place in places}
        return {number: sentence for number, sentence in self.sentences() if number in needed}


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


document(NearestToken)


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
    names = layer_names(layers, bilm.num_layers)
    text = _Corpus(corpus, bilm.options.tokenizer)
    queries = unit_rows(next(run_batches(bilm, [query], layers)).vectors()[0])[:, index]  # [K, 2D]
    embedded = text.unit_vectors(bilm, layers, progress, batch_size=batch_size, max_tokens=max_tokens)
    if cache is None:
        searches = [Search(of_layer[None], topn) for of_layer in queries]
        for sentence, vectors in embedded:
            for search, rows in zip(searches, vectors, strict=True):
                search.add(int(text.starts[sentence]), rows, unit=True)
        results = [search.nearest() for search in searches]
    else:
        made_from: _MadeFrom = {
            "corpus": text.sha256,
            "model": model_digest(bilm),
            "precision": bilm.arithmetic,
            "layers": names,
        }
        results = _search_cache(cache, made_from, list(text.lengths.values()), embedded, queries, topn)
    places = [np.searchsorted(text.starts, near.rows[0], side="right") - 1 for near in results]
    chosen = text.chosen(place for each in places for place in each)
    return {
        name: [
            NearestToken(float(cosine), number := text.numbers[s], int(row - text.starts[s]), chosen[number].tokens)
            for cosine, row, s in zip(near.cosines[0], near.rows[0], sentences, strict=True)
        ]
        for name, near, sentences in zip(names, results, places, strict=True)
    }


class NearestSentence(NamedTuple):
    """A sentence of a corpus and how near it is."""

    cosine: float
    """of its vector and the query's"""
    line: int
    """which line of the corpus (row of a table), from 0"""
    text: str
    """the line; of a table, the value; of FASTA, the name"""


document(NearestSentence)


def nearest_sentences(
    bilm: BiLM,
    corpus: str | os.PathLike[str] | Source,
    query: str | Sequence[str],
    *,
    topn: int = 10,
    layers: Layers = "average",
    pool: Pool = "mean",
    tokenizer: Tokenizer | None = None,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    progress: Progress | None = None,
) -> dict[str, list[NearestSentence]]:
    """Find, for each layer, the sentences of a corpus nearest to a sentence, by the cosine of their vectors.

    The vectors are those of `ElmoEmbedder.encode`. The search is exact and keeps the vectors of one batch at a time.

    Args:
        bilm: the model, on any device.
        corpus: raw text, one sentence per line, plain or .gz, or any `elmo_fast.text.Source`, such as the column of a
            table; sentences without tokens are left out.
        query: a raw string or a list of words.
        topn: how many to find, nearest first, of equal ones the earlier.
        layers: "average" of all, the "top", "all" (a list for each), a number from 0, or several.
        pool: how the vectors of a sentence's tokens become one: "mean", "max" or "first_last".
        tokenizer: of a text file as corpus, and of a string as query, as in ElmoEmbedder.encode.
        batch_size, max_tokens: as in ElmoEmbedder.embed_file.
        progress: called after each batch with the tokens done and all tokens.

    Returns: the name of each layer ("average", or its number) -> its nearest sentences.

    Raises: ElmoFastError: a query without words, no such layer, a corpus without tokens; OSError.
    """
    check_counts(topn=topn)
    names = layer_names(layers, bilm.num_layers)
    name_of_tokenizer = tokenizer or bilm.options.tokenizer or RAW_TEXT
    [words] = checked_sentences([query], "query", tokenizer_of(name_of_tokenizer))
    if not words:
        raise ElmoFastError(f"query must have at least one word; got {query!r}")
    text = _Corpus(corpus, name_of_tokenizer)
    [query_layers] = next(run_batches(bilm, [words], layers)).vectors()
    searches = [Search(of_layer[None], topn) for of_layer in unit_rows(pooled(query_layers, pool))]
    for sentence, vectors in text.unit_vectors(
        bilm, layers, progress, pool, batch_size=batch_size, max_tokens=max_tokens
    ):
        for search, row in zip(searches, vectors, strict=True):
            search.add(sentence, row, unit=True)
    results = [search.nearest() for search in searches]
    chosen = text.chosen(place for near in results for place in near.rows[0])
    return {
        name: [
            NearestSentence(float(cosine), number := text.numbers[s], chosen[number].name)
            for cosine, s in zip(near.cosines[0], near.rows[0], strict=True)
        ]
        for name, near in zip(names, results, strict=True)
    }


def layer_names(layers: Layers, count: int) -> list[str]:
    """Return the name of each chosen layer: "average", or its number. count: L+1. Raises: ElmoFastError."""
    numbers = layer_numbers(layers, count)
    return ["average"] if numbers is None else [str(number) for number in numbers]


def check_query(query: Sequence[str], index: int, topn: int) -> None:
    """Raise ElmoFastError for an index that is no token's of the query, or topn below 1."""
    check_words(query, "query")
    if not 0 <= index < len(query):
        places = " ".join(f"{i}:{token}" for i, token in enumerate(query)) or "none"
        raise ElmoFastError(f"index must be the place of a token of the query ({places}); got {index}")
    check_counts(topn=topn)


class _MadeFrom(TypedDict):
    """What the vectors of a cache depend on."""

    corpus: str
    model: str
    precision: str
    layers: list[str]


def _search_cache(
    path: str | os.PathLike[str],
    made_from: _MadeFrom,
    lengths: Sequence[int],
    embedded: Iterator[tuple[int, Floats]],
    queries: Floats,
    topn: int,
) -> list[Nearest]:
    """Find the tokens nearest to each layer's query, [K, 2D]; write the file first if it is missing or damaged."""
    names, file = made_from["layers"], None
    stored_names = names
    if os.path.exists(path):
        try:
            file = read_cache_folder(path)
            stored = parsed(file.metadata.get("made_from", ""), _MadeFrom, f"{os.fspath(path)}: made_from")
            stored_names = stored["layers"]
            others = [name for name, value in stored.items() if name != "layers" and value != made_from.get(name)]
            if others or not set(names) <= set(stored_names):
                what = f"a different {others[0]}" if others else f"layers {', '.join(stored_names)} only"
                raise ElmoFastError(f"cache {os.fspath(path)} is of {what}; name another file, or remove this one")
        except CheckpointError as error:
            warnings.warn(f"{error}; it is written again", stacklevel=3)
            file, stored_names = None, names
    if file is None:
        shape = len(names), queries.shape[1]
        check_room(path, 4 * shape[0] * shape[1] * sum(lengths))
        with writing_cache_folder(path, lengths, *shape, json.dumps(made_from)) as write:
            for sentence, vectors in embedded:
                write(sentence, vectors)
        file = read_cache_folder(path)
    rows = [stored_names.index(name) for name in names]
    return [nearest_in(file, row, query[None], topn) for row, query in zip(rows, queries, strict=True)]


def nearest_in(file: FlatFile, layer: int, queries: Floats, topn: int) -> Nearest:
    """Find the rows nearest to each query, [Q, 2D], among a layer's unit vectors."""
    search = Search(queries, topn)
    search.add_all(file.embeddings[:, layer], unit=True)
    return search.nearest()
