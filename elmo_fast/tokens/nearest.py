"""Tokens of a text by their vectors in context: the nearest to a token, cached in a file for the next query."""

import functools
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.fields import parsed
from elmo_fast.files import sha256_of
from elmo_fast.modules import BiLM, ElmoEmbedder
from elmo_fast.modules.bilm import model_digest
from elmo_fast.modules.layers import Layers, layer_numbers
from elmo_fast.modules.sentence_vectors import embed_batch, embed_batches
from elmo_fast.progress import Progress
from elmo_fast.static.neighbours import Nearest, nearest
from elmo_fast.text import read_sentences
from elmo_fast.token_files import CacheFile, DamagedFile, check_room, writing_cache_file

Floats = npt.NDArray[np.float32]


def in_context(
    tokens: Sequence[str], place: int, words: int, marks: tuple[str, str] = ("[", "]"), ellipsis: str = ""
) -> str:
    """The token at `place` between two marks, among up to `words` tokens to each side; ellipsis: where some are cut."""
    start, end = max(0, place - words), place + 1 + words
    near = [*tokens[start:place], tokens[place].join(marks), *tokens[place + 1 : end]]
    return " ".join(filter(None, [ellipsis if start else "", *near, ellipsis if end < len(tokens) else ""]))


class TextTokens:
    """The vectors of every token of some sentences by one layer, less their mean, in the text's order.

    embedder: the biLM, without carried state; sentences: of one token at least; layer: its number, -1 for the last.
    vectors: [N, 2D] float32; mean: what was subtracted from each, [2D]; starts: each sentence's first token, and N.
    """

    def __init__(self, embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], layer: int = -1) -> None:
        arrays = [array[layer] for array in embedder.embed_sentences(sentences)]
        self.sentences = sentences
        self.starts = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
        everything = np.concatenate(arrays)
        self.mean: Floats = everything.mean(axis=0)
        self.vectors: Floats = everything - self.mean

    def where(self, index: int) -> tuple[int, int]:
        """(sentence, place in it) of the token whose vector is at `index`."""
        sentence = int(np.searchsorted(self.starts, index, side="right")) - 1
        return sentence, index - int(self.starts[sentence])

    def index(self, sentence: int, place: int) -> int:
        """The index of a token's vector."""
        return int(self.starts[sentence]) + place

    def nearest(self, queries: Floats, topn: int) -> Nearest:
        """The tokens nearest to each query, [Q, 2D], from which the mean is subtracted too."""
        return nearest(self.vectors, np.ascontiguousarray(queries - self.mean), min(topn, len(self.vectors)))


class CorpusLines(NamedTuple):
    """A text: its file, and of every line that has tokens its number (from 0) and how many it has."""

    path: str
    lines: Sequence[int]
    lengths: Sequence[int]


class _MadeFrom(TypedDict):
    corpus: str
    model: str
    precision: str
    layers: list[str]


def search_cache(
    path: str | os.PathLike[str],
    corpus: CorpusLines,
    bilm: BiLM,
    layers: Sequence[str],
    embedded: Iterable[tuple[int, Floats]],
    queries: Floats,
    topn: int,
) -> list[Nearest]:
    """For each layer the tokens nearest to its query; writes the file first if it does not exist.

    A damaged file is replaced, with a warning; one of another corpus or model is refused, so that it is not lost.

    layers: their names, K; embedded: (line, unit vectors [K, n, 2D]) of every line that has tokens, in any order, read
    only to write the file; queries: [K, 2D]
    """
    made_from: _MadeFrom = {
        "corpus": sha256_of(corpus.path),
        "model": model_digest(bilm),
        "precision": bilm._elmo_lstm.precision,
        "layers": list(layers),
    }
    if os.path.exists(path):
        try:
            return _search(_opened(path, made_from), layers, queries, topn)
        except DamagedFile as error:
            warnings.warn(f"{error}; it is written anew", stacklevel=3)
    shape = len(layers), queries.shape[1]
    check_room(path, 4 * shape[0] * shape[1] * sum(corpus.lengths))
    with writing_cache_file(path, corpus.lengths, *shape, json.dumps(made_from)) as file:
        for line, vectors in embedded:
            file.write(int(np.searchsorted(corpus.lines, line)), vectors)
    return _search(CacheFile(path), layers, queries, topn)


def _opened(path: str | os.PathLike[str], made_from: _MadeFrom) -> CacheFile:
    file = CacheFile(path)
    kept = _made_from(file)
    missing = set(made_from["layers"]) - set(kept["layers"])
    others = [name for name, value in kept.items() if name != "layers" and value != made_from.get(name)]
    if others or missing:
        what = f"another {others[0]}" if others else f"layers {', '.join(kept['layers'])} only"
        raise ElmoFastError(f"cache {os.fspath(path)} is of {what}; name another file, or remove this one")
    return file


def _made_from(file: CacheFile) -> _MadeFrom:
    return parsed(file.made_from, _MadeFrom, f"{file.path}: made_from")


def _search(file: CacheFile, layers: Sequence[str], queries: Floats, topn: int) -> list[Nearest]:
    kept = _made_from(file)["layers"]
    return [
        nearest_in(file, kept.index(layer), query[None], topn) for layer, query in zip(layers, queries, strict=True)
    ]


def nearest_in(file: CacheFile, layer: int, queries: Floats, topn: int) -> Nearest:
    """As `nearest`, among unit vectors of a layer; DamagedFile if one of them has changed."""
    check = file.check_of(layer)
    return nearest(file.vectors[layer], queries, topn, unit=True, check=check, block_rows=file.block_rows)


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
        corpus: text, one sentence per line, plain or .gz, split by the tokenizer of the model; lines without tokens are
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
    lengths = {line: len(tokens) for line, tokens in read_sentences(corpus, bilm.options.tokenizer) if tokens}
    if not lengths:
        raise ElmoFastError(f"corpus {os.fspath(corpus)} must have at least one token; every line is blank")
    wanted = _unit(embed_batch(bilm, [query], layers)[0])[:, index]
    settings = {"batch_size": batch_size, "max_tokens": max_tokens}
    embed = functools.partial(_embedded, bilm, corpus, layers, sum(lengths.values()), progress, settings)
    if cache is None:
        found = _streamed(embed(), wanted, topn)
    else:
        text = CorpusLines(os.fspath(corpus), list(lengths), list(lengths.values()))
        made = ((line, vectors) for line, _, vectors in embed())
        found = _in_corpus(text, bilm.options.tokenizer, search_cache(cache, text, bilm, names, made, wanted, topn))
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
        for line, tokens in read_sentences(corpus, bilm.options.tokenizer):
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


def _streamed(
    embedded: Iterator[tuple[int, Sequence[str], Floats]], wanted: Floats, topn: int
) -> list[list[NearestToken]]:
    """The nearest tokens for each layer; at most `topn` and one sentence's are kept in memory. wanted: [K, 2D]"""
    best: list[list[NearestToken]] = [[] for _ in wanted]
    for line, tokens, vectors in embedded:
        for kept, of_layer, query in zip(best, vectors, wanted, strict=True):
            near = nearest(np.ascontiguousarray(of_layer), query[None], topn, unit=True)
            pairs = zip(near.cosines[0].tolist(), near.rows[0].tolist(), strict=True)
            kept += [NearestToken(cosine, line, place, tokens) for cosine, place in pairs]
            kept.sort(key=lambda token: (-token.cosine, token.line, token.place))
            del kept[topn:]
    return best


def _in_corpus(text: CorpusLines, tokenizer: str | None, found: Sequence[Any]) -> list[list[NearestToken]]:
    """found: of each layer the Nearest among all tokens."""
    starts = np.cumsum([0, *text.lengths])
    at = [np.searchsorted(starts, part.rows[0], side="right") - 1 for part in found]
    lines = {text.lines[sentence] for sentences in at for sentence in sentences}
    tokens = {line: tokens for line, tokens in read_sentences(text.path, tokenizer) if line in lines}
    return [
        [
            NearestToken(float(cosine), text.lines[s], int(row - starts[s]), tokens[text.lines[s]])
            for cosine, row, s in zip(part.cosines[0], part.rows[0], sentences, strict=True)
        ]
        for part, sentences in zip(found, at, strict=True)
    ]
