"""`elmo-fast neighbours`: the tokens of a corpus whose vectors, in context, lie nearest to one token's."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import batches, read_sentences, rereadable

# Batches whose sentences are sorted by length together.
WINDOW = 16
CONTEXT = 6


class Neighbour(NamedTuple):
    """A token of the corpus and how near it is: cosine, line (from 0), place in it (from 0), its tokens."""

    cosine: float
    line: int
    place: int
    tokens: Sequence[str]


def build_parser() -> Any:
    """The options of `elmo-fast neighbours`."""
    parser = _common.new_parser(
        "neighbours",
        "Lists the tokens of a corpus nearest to one token of a sentence, by the cosine of their vectors in context.",
    )
    _model.add_options(parser)
    parser.add_argument("--corpus", type=str, required=True, help="text, one sentence per line")
    parser.add_argument("--query", type=str, required=True, help="a sentence, its tokens split by spaces")
    parser.add_argument("--index", type=int, required=True, help="which token of the query, from 0")
    parser.add_argument("--topn", type=int, default=10, help="how many to list")
    parser.add_argument(
        "--layer", type=str, default="top", help='"top", "average", "all" (a list for each), or a number from 0'
    )
    parser.add_argument("--batch_size", type=int, default=64, help="most sentences run together")
    parser.add_argument("--max_tokens", type=int | None, default=None, help="most tokens run together, padding counted")
    parser.add_argument(
        "--cache",
        type=str | None,
        default=None,
        help="file for the corpus's vectors: written by the first query, read by the next, which take a second; "
        "4 bytes x tokens x width (1024 for the published model) a layer",
    )
    parser.writes("cache")
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    return parser


def run(arguments: Any) -> int:
    """Embeds the query, then the corpus, keeping the nearest, and prints one list per layer."""
    _model.resolve(arguments)
    query = arguments.query.split()
    if not 0 <= arguments.index < len(query):
        places = " ".join(f"{i}:{token}" for i, token in enumerate(query)) or "none"
        raise ElmoFastError(f"--index must be the place of a token of the query ({places}); got {arguments.index}")
    if arguments.topn < 1:
        raise ElmoFastError(f"--topn must be 1 or more; got {arguments.topn}")
    with rereadable(arguments.corpus) as corpus:
        lengths = {line: len(tokens) for line, tokens in read_sentences(corpus) if tokens}
        if not lengths:
            raise ElmoFastError(f"--corpus {arguments.corpus} holds no token")
        device = _common.set_up(arguments)
        embedder = _model.load_embedder(arguments, device, stateful=False)
        layers = layers_named(arguments.layer, embedder.elmo_bilm.num_layers)
        total, lines = sum(lengths.values()), arguments.file_friendly_logging
        with _progress.Progress(total, lines=lines, quiet=arguments.quiet) as progress:
            if arguments.cache is None:
                found = nearest(arguments, corpus, embedder, query, layers, progress)
            else:
                found = nearest_kept(arguments, corpus, lengths, embedder, query, layers, progress)
    for name, neighbours in zip(layers, found, strict=True):
        print(f"{shown(query, arguments.index)}   layer {name}")
        for rank, neighbour in enumerate(neighbours, start=1):
            context = shown(neighbour.tokens, neighbour.place)
            print(f"{rank:>3}  {neighbour.cosine:.4f}  line {neighbour.line + 1}: {context}")
    return 0


def layers_named(name: str, count: int) -> list[str]:
    """The layers that --layer asks for: numbers as text, or "average"."""
    known = [str(layer) for layer in range(count)]
    if name == "all":
        return known
    if name == "top":
        return known[-1:]
    if name in (*known, "average"):
        return [name]
    raise ElmoFastError(f"--layer must be top, average, all or one of {', '.join(known)}; got {name!r}")


def chosen(vectors: np.ndarray[Any, Any], layers: Sequence[str]) -> np.ndarray[Any, Any]:
    """The layers named, each token's vector scaled to length 1: [layers, n, 2D] float32 from [L, n, 2D]."""
    picked = np.stack([vectors.mean(0) if name == "average" else vectors[int(name)] for name in layers])
    norms = np.linalg.norm(picked, axis=-1, keepdims=True)
    return np.divide(picked, norms, out=np.zeros_like(picked), where=norms > 0)


def nearest(
    arguments: Any,
    corpus: str,
    embedder: Any,
    query: Sequence[str],
    layers: Sequence[str],
    progress: _progress.Progress,
) -> list[list[Neighbour]]:
    """For each layer the `topn` nearest tokens of the corpus, nearest first; of equal ones the earlier."""
    wanted = chosen(embedder.embed_batch([query])[0], layers)[:, arguments.index]
    heaps: list[list[tuple[float, int, int, Sequence[str]]]] = [[] for _ in layers]
    for line, tokens, vectors in embedded(arguments, corpus, embedder, progress):
        cosines = np.einsum("ltd,ld->lt", chosen(vectors, layers), wanted)
        for heap, of_layer in zip(heaps, cosines, strict=True):
            for place in np.argsort(-of_layer, kind="stable")[: arguments.topn]:
                item = (float(of_layer[place]), -line, -int(place), tokens)
                if len(heap) < arguments.topn:
                    heapq.heappush(heap, item)
                elif item[:3] > heap[0][:3]:
                    heapq.heapreplace(heap, item)
                else:
                    break
    ordered = [sorted(heap, key=lambda item: item[:3], reverse=True) for heap in heaps]
    return [[Neighbour(c, -line, -place, tokens) for c, line, place, tokens in heap] for heap in ordered]


def nearest_kept(
    arguments: Any,
    corpus: str,
    lengths: dict[int, int],
    embedder: Any,
    query: Sequence[str],
    layers: Sequence[str],
    progress: _progress.Progress,
) -> list[list[Neighbour]]:
    """The same, from a file of the corpus's vectors, which is written where it is not there.

    lengths: how many tokens each line has, of those that have any
    """
    from elmo_fast.cli import _token_cache

    def embed() -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        for line, _, vectors in embedded(arguments, corpus, embedder, progress):
            yield line, chosen(vectors, layers)

    wanted = chosen(embedder.embed_batch([query])[0], layers)[:, arguments.index]
    text = _token_cache.Corpus(corpus, list(lengths), list(lengths.values()))
    source = _token_cache.Source(text, embedder.elmo_bilm, arguments.precision, layers, embed)
    found = _token_cache.nearest_cached(arguments.cache, source, wanted, arguments.topn)
    starts = np.cumsum([0, *text.lengths])
    at = [np.searchsorted(starts, part.rows[0], side="right") - 1 for part in found]
    lines = {text.lines[sentence] for sentences in at for sentence in sentences}
    tokens = {line: tokens for line, tokens in read_sentences(corpus) if line in lines}
    return [
        [
            Neighbour(float(cosine), text.lines[s], int(row - starts[s]), tokens[text.lines[s]])
            for cosine, row, s in zip(part.cosines[0], part.rows[0], sentences, strict=True)
        ]
        for part, sentences in zip(found, at, strict=True)
    ]


def embedded(
    arguments: Any, corpus: str, embedder: Any, progress: _progress.Progress
) -> Iterator[tuple[int, Sequence[str], np.ndarray[Any, Any]]]:
    """(line, tokens, vectors [L, n, 2D]) of each sentence of the corpus that has tokens, in no particular order."""
    lines: list[int] = []

    def sentences() -> Iterable[list[str]]:
        for line, tokens in read_sentences(corpus):
            if tokens:
                lines.append(line)
                yield tokens

    check_memory = _model.MemoryCheck(embedder)
    for indices, members in batches(
        sentences(), batch_size=arguments.batch_size, max_tokens=arguments.max_tokens, window=WINDOW
    ):
        check_memory(members, [lines[i] + 1 for i in indices])
        for index, tokens, vectors in zip(indices, members, embedder.embed_batch(members), strict=True):
            yield lines[index], tokens, vectors
        progress.add(sum(map(len, members)))


def shown(tokens: Sequence[str], place: int) -> str:
    """The token at `place` in brackets among its neighbours in the sentence."""
    left = " ".join(tokens[max(0, place - CONTEXT) : place])
    right = " ".join(tokens[place + 1 : place + 1 + CONTEXT])
    before = "... " if place > CONTEXT else ""
    after = " ..." if len(tokens) - place - 1 > CONTEXT else ""
    return f"{before}{left}{' ' if left else ''}[{tokens[place]}]{' ' if right else ''}{right}{after}"
