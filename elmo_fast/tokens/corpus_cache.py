"""The vectors of a corpus's tokens, cached in a file for the next query."""

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import sha256_of
from elmo_fast.json_files import parsed
from elmo_fast.modules import BiLM
from elmo_fast.modules.model_digest import model_digest
from elmo_fast.static.neighbours import Nearest, nearest
from elmo_fast.token_files import CacheFile, DamagedFile, check_room, writing_cache_file

Floats = npt.NDArray[np.float32]


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
