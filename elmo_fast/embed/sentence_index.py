"""Sentences searched by the cosine of their vectors; the text that is searched, and the folder with its vectors."""

import hashlib
import json
import math
import os
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from elmo_fast._docstrings import document
from elmo_fast._io.atomic_folder import MANIFEST, has_files
from elmo_fast._io.fields import parsed
from elmo_fast._runtime.progress import Progress
from elmo_fast.embed.layers import Layers, layer_names
from elmo_fast.embed.layers import pool as pooled
from elmo_fast.embed.search import Search, blocks
from elmo_fast.embed.sentence_vectors import run_batches, write_vectors
from elmo_fast.embed.token_files import VECTORS, FlatFile, Write, check_room, read_cache_folder, writing_cache_folder
from elmo_fast.errors import CheckpointError, ElmoFastError, check_choice, check_counts, quoted
from elmo_fast.modules.bilm import BiLM, model_digest
from elmo_fast.op_choices import POOLS, Pool, Tokenizer
from elmo_fast.text import ScannedText, Source, checked_sentences
from elmo_fast.text import tokenizer as tokenizer_of

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Path = str | os.PathLike[str]


class MadeFrom(TypedDict):
    """What the vectors of a folder depend on; those of tokens have no pool, no tokenizer and nothing removed."""

    corpus: str
    model: str
    precision: str
    layers: list[str]
    pool: NotRequired[Pool]
    tokenizer: NotRequired[Tokenizer]
    remove_components: NotRequired[int | None]


class SearchedText:
    """A text that is searched; its source is read again at each use.

    names: of its sentences; lengths: tokens of each, 0 of a blank one; starts: each one's first token among all, and
    their number; sha256: of the tokens. Raises ElmoFastError if there is no token.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.names, lengths, digest = source, list[str](), array("q"), hashlib.sha256()
        for sentence in source.sentences():
            self.names.append(source.shown(sentence))
            lengths.append(len(sentence.tokens))
            digest.update(f"{chr(31).join(sentence.tokens)}\n".encode("utf-8", "surrogatepass"))
        self.lengths, self.sha256 = np.array(lengths, np.int64), digest.hexdigest()
        if not self.lengths.any():
            why = f"every {source.unit} is blank" if lengths else "got no sentences"
            raise ElmoFastError(f"{source.name} must have at least one token; {why}")
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    def made_from(self, bilm: BiLM, layers: Layers) -> MadeFrom:
        """Return what the vectors of the tokens depend on."""
        names = layer_names(layers, bilm.num_layers)
        return {"corpus": self.sha256, "model": model_digest(bilm), "precision": bilm.arithmetic, "layers": names}

    def embed(self, bilm: BiLM, layers: Layers, write: Write, progress: Progress | None, **sizes: Any) -> None:
        """Call `write` with each sentence's number and its tokens' vectors [K, T, 2D], in any order.

        sizes: batch_size and max_tokens. Raises ElmoFastError if the text has changed.
        """
        words, total = ScannedText(self.lengths, None, self.source).sentences(), int(self.starts[-1])
        write_vectors(bilm, words, write, layers, total=total, progress=progress, **sizes)


def read_vectors(path: Path, expected: Mapping[str, Any]) -> tuple[FlatFile, MadeFrom]:
    """Open a folder of vectors, and what they were made from; ElmoFastError for something else, or damage."""
    file = read_cache_folder(path)
    stored = parsed(file.metadata.get("made_from", ""), MadeFrom, f"{os.fspath(path)}: made_from")
    others = [name for name in expected if name != "layers" and stored.get(name) != expected[name]]
    if "corpus" in expected:
        others += [name for name in stored if name not in expected]
    if others or not set(expected.get("layers", ())) <= set(stored["layers"]):
        if "precision" in others:
            others[others.index("precision")] = f"precision ({stored['precision']}, not {expected['precision']})"
        what = f"a different {', '.join(others)}" if others else f"layers {', '.join(stored['layers'])} only"
        raise ElmoFastError(f"cache {os.fspath(path)} is of {what}; name another file, or remove this one")
    return file, stored


def cached_vectors(path: Path, made_from: MadeFrom) -> tuple[FlatFile, MadeFrom] | None:
    """Open a cache as `read_vectors` does; None if it is missing or, which is a warning, damaged."""
    if not os.path.exists(path):
        return None
    try:
        return read_vectors(path, made_from)
    except CheckpointError as error:
        warnings.warn(f"{error}; it is written again", stacklevel=4)
        return None


@document
class NearestSentence(NamedTuple):
    """A sentence of an index and how near it is."""

    cosine: float
    """of its vector and the query's"""
    number: int
    """which sentence (line of a file, row of a table), from 0"""
    text: str
    """the sentence; of a table, the value; of FASTA, the name"""


class SentenceIndex:
    """The vectors of sentences, searched by cosine: exact, block by block. `ElmoEmbedder.index` builds one.

    sentences: their texts, by number; made_from: the pool, layers, tokenizer, precision and what else the vectors
    depend on; queries are embedded in the same way. The model's weights must not change.
    """

    def __init__(
        self, bilm: BiLM, made_from: MadeFrom, sentences: list[str], numbers: Numbers, vectors: Floats, removed: Floats
    ) -> None:
        self.sentences, self.made_from = sentences, made_from
        self._bilm, self._numbers, self._vectors, self._removed = bilm, numbers, vectors, removed

    def __len__(self) -> int:
        return len(self.sentences)

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self.made_from.items() if name not in ("corpus", "model")]
        return f"SentenceIndex({len(self):,} sentences, {', '.join(settings)})"

    @classmethod
    def build(
        cls,
        bilm: BiLM,
        source: Source,
        cache: Path | None = None,
        *,
        layers: Layers,
        pool: Pool,
        tokenizer: Tokenizer,
        remove_components: int | None = None,
        progress: Progress | None = None,
        **sizes: Any,
    ) -> "SentenceIndex":
        """Embed a text, or read its index.

        Args:
            source: the text; tokenizer: what splits it, and queries.
            cache: folder that the first call writes and later ones read. A damaged one is written again, with a
                warning; one of a different text, model or setting is refused.
            layers, pool, remove_components, progress: as in ElmoEmbedder.index; sizes: batch_size and max_tokens.

        Raises: ElmoFastError, OSError.
        """
        check_choice("pool", pool, POOLS)
        text, shape = SearchedText(source), (len(layer_names(layers, bilm.num_layers)), bilm.get_output_dim())
        numbers, row_of = np.flatnonzero(text.lengths), np.cumsum(text.lengths > 0) - 1
        most = min(len(numbers), shape[1])
        if remove_components is not None and not 0 <= remove_components < most:
            raise ElmoFastError(
                f"remove_components must be None or from 0, the mean alone, to {most - 1}, below the number of "
                f"sentences and the width of their vectors; got {remove_components}"
            )
        made_from = text.made_from(bilm, layers)
        made_from |= {"pool": pool, "tokenizer": tokenizer, "remove_components": remove_components}
        if cache is not None:
            if (read := cached_vectors(cache, made_from)) is not None:
                return cls._read(bilm, *read, text.names)
            check_room(cache, 4 * len(numbers) * math.prod(shape))

        vectors = np.empty((len(numbers), *shape), np.float32)

        def keep(number: int, of_tokens: Floats) -> None:
            if text.lengths[number]:
                vectors[row_of[number]] = pooled(of_tokens, pool)

        text.embed(bilm, layers, keep, progress, **sizes)
        index = cls(bilm, made_from, text.names, numbers, vectors, mean_and_components(vectors, remove_components))
        if cache is not None:
            index.save(cache)
        return index

    def search(
        self, queries: str | Iterable[str | Sequence[str]], topn: int = 10, *, layer: str | int | None = None
    ) -> list[list[NearestSentence]]:
        """Find the sentences nearest to each query: for each a list of (cosine, number, text).

        Nearest first, of equal ones the earlier.

        Args:
            queries: raw strings or lists of words, or one string, which gives a list of one list.
            topn: how many to find; blank sentences are none.
            layer: which, if the index has several.

        Raises: ElmoFastError: a query without words, a layer that the index does not have.
        """
        check_counts(topn=topn)
        layers = self.made_from["layers"]
        name = str(layer) if layer is not None or len(layers) > 1 else layers[0]
        if name not in layers:
            raise ElmoFastError(f"layer must be one of those of the index, {', '.join(layers)}; got {layer!r}")
        texts = [queries] if isinstance(queries, str) else queries
        words = list(checked_sentences(texts, "queries", tokenizer_of(self.made_from["tokenizer"])))
        if blank := [number for number, tokens in enumerate(words) if not len(tokens)]:
            raise ElmoFastError(f"queries[{blank[0]}] must have at least one word; it is blank")
        column, vectors = layers.index(name), np.empty((len(words), self._removed.shape[2]), np.float32)
        for batch in run_batches(self._bilm, words, name if name == "average" else int(name)):
            vectors[batch.indices] = [pooled(each[0], self.made_from["pool"]) for each in batch.vectors()]
        search = Search(self._reduced(vectors, column), topn)
        for first, rows in blocks(self._vectors) if words else ():
            search.add(first, self._reduced(rows[:, column], column))
        near = search.nearest()
        return [
            [NearestSentence(cosine, number, self.sentences[number]) for cosine, number in zip(*pairs, strict=True)]
            for pairs in zip(near.cosines.tolist(), self._numbers[near.rows].tolist(), strict=True)
        ]

    def _reduced(self, rows: Floats, column: int) -> Floats:
        """Return vectors [n, 2D] of one layer, less the mean and the components."""
        if not len(self._removed):
            return rows
        centred, components = rows - self._removed[0, column], self._removed[1:, column]
        return centred - (centred @ components.T) @ components

    def save(self, folder: Path) -> None:
        """Write the index into a folder, which is complete or not there.

        Raises: ElmoFastError: a folder of something else; OSError.
        """
        if os.path.isdir(folder) and os.listdir(folder) and not has_files(folder, VECTORS, MANIFEST):
            raise ElmoFastError(f"{os.fspath(folder)}: holds other files than an index; name another folder")
        lengths = np.zeros(len(self) + 1, np.int64)  # rows of each sentence; the last entry is what is removed
        lengths[self._numbers], lengths[-1] = 1, len(self._removed)
        about, (layers, width) = json.dumps(self.made_from), self._removed.shape[1:]
        with writing_cache_folder(folder, lengths, layers, width, about, self.sentences) as write:
            for number, vectors in zip(self._numbers.tolist(), self._vectors, strict=True):
                write(number, vectors[:, None])
            write(len(self), self._removed.swapaxes(0, 1))

    @classmethod
    def load(cls, folder: Path, model: Any) -> "SentenceIndex":
        """Open a folder that `save` or `elmo-fast neighbours --cache` wrote, memory-mapped.

        model: the ElmoEmbedder (or its BiLM), which embeds queries. Raises: ElmoFastError: its weights or precision
        are others than the index's, the folder holds something else; CheckpointError: the folder is damaged.
        """
        bilm = getattr(model, "elmo_bilm", model)
        if not isinstance(bilm, BiLM):
            raise ElmoFastError(f"model, the second argument, must be an ElmoEmbedder or its BiLM; got {quoted(model)}")
        file, made_from = read_vectors(folder, {"model": model_digest(bilm), "precision": bilm.arithmetic})
        if "pool" not in made_from:
            raise ElmoFastError(f"{os.fspath(folder)}: holds vectors of tokens; wanted an index of sentences")
        return cls._read(bilm, file, made_from, file.names or [])

    @classmethod
    def _read(cls, bilm: BiLM, file: FlatFile, made_from: MadeFrom, sentences: list[str]) -> "SentenceIndex":
        end, numbers = int(file.offsets[-2]), np.flatnonzero(np.diff(file.offsets[:-1]))
        return cls(bilm, made_from, sentences, numbers, file.embeddings[:end], np.array(file.embeddings[end:]))


def mean_and_components(vectors: Floats, count: int | None) -> Floats:
    """Return the mean and the first principal components of each layer of [N, K, 2D]: [1 + count, K, 2D].

    count: how many components; None: nothing, not even the mean, [0, K, 2D].
    Source: J. Mu and P. Viswanath, "All-but-the-Top", ICLR 2018.
    """
    if count is None:
        return vectors[:0]
    means = vectors.mean(0, dtype=np.float64)
    removed = np.empty((1 + count, *means.shape), np.float32)
    removed[0] = means
    for layer, mean in enumerate(means if count else ()):
        centred = (rows[:, layer] - mean for _, rows in blocks(vectors))
        covariance = sum((rows.T @ rows for rows in centred), np.zeros((len(mean), len(mean))))
        removed[1:, layer] = np.linalg.eigh(covariance)[1][:, : -count - 1 : -1].T
    return removed
