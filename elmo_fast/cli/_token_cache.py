"""The token vectors of a corpus, kept in a file for the next query: what `elmo-fast neighbours --cache FILE` does."""

import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from elmo_fast.cli._vector_files import free_bytes
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import sha256_of
from elmo_fast.json_files import parsed
from elmo_fast.sizes import size
from elmo_fast.static.neighbours import Nearest
from elmo_fast.static.token_file import DamagedFile, TokenFile, writing_token_file


class Corpus(NamedTuple):
    """A text: its file, and of every line that has tokens its number (from 0) and how many it has."""

    path: str
    lines: Sequence[int]
    lengths: Sequence[int]


class Source(NamedTuple):
    """What the vectors come from: a text, a model at a precision, the names of the layers; and what embeds all of it.

    embed: yields (line, vectors [layers, n, 2D], each of length 1) of every line that has tokens, in any order
    """

    corpus: Corpus
    bilm: Any
    precision: str
    layers: Sequence[str]
    embed: Callable[[], Iterable[tuple[int, np.ndarray[Any, Any]]]]


def nearest_cached(path: str, source: Source, queries: np.ndarray[Any, Any], topn: int) -> list[Nearest]:
    """For each layer the tokens nearest to its query, [layers, 2D]; the file is written first where it is not there.

    A damaged file is written anew, and said; one of another text or model is refused, so that it is not lost.
    """
    made_from = {
        "corpus": sha256_of(source.corpus.path),
        "model": _digest(source.bilm),
        "precision": source.precision,
        "layers": list(source.layers),
    }
    if os.path.exists(path):
        try:
            return _search(_opened(path, made_from), source.layers, queries, topn)
        except DamagedFile as error:
            warnings.warn(f"{error}; it is written anew", stacklevel=2)
    _write(path, source, queries.shape[1], json.dumps(made_from))
    return _search(TokenFile(path), source.layers, queries, topn)


def _opened(path: str, made_from: dict[str, Any]) -> TokenFile:
    file = TokenFile(path)
    kept = _made_from(file)
    missing = set(made_from["layers"]) - set(kept["layers"])
    others = [name for name, value in kept.items() if name != "layers" and value != made_from.get(name)]
    if others or missing:
        what = f"another {others[0]}" if others else f"layers {', '.join(kept['layers'])} only"
        raise ElmoFastError(f"--cache {path} is of {what}; name another file, or remove this one")
    return file


class _MadeFrom(TypedDict):
    corpus: str
    model: str
    precision: str
    layers: list[str]


def _made_from(file: TokenFile) -> _MadeFrom:
    return parsed(file.made_from, _MadeFrom, f"{file.path}: made_from")


def _search(file: TokenFile, layers: Sequence[str], queries: np.ndarray[Any, Any], topn: int) -> list[Nearest]:
    kept = _made_from(file)["layers"]
    return [file.nearest(kept.index(layer), query[None], topn) for layer, query in zip(layers, queries, strict=True)]


def _write(path: str, source: Source, width: int, made_from: str) -> None:
    corpus = source.corpus
    needed, free = 4 * len(source.layers) * sum(corpus.lengths) * width, free_bytes(path)
    if needed > free:
        raise ElmoFastError(f"--cache {path} takes {size(needed)}, and {size(free)} are free there")
    with writing_token_file(path, corpus.lengths, len(source.layers), width, made_from) as file:
        for line, vectors in source.embed():
            file.write(int(np.searchsorted(corpus.lines, line)), vectors)


def _digest(bilm: Any) -> str:
    """Of all weights, their names and shapes."""
    value = []
    for name, tensor in sorted(bilm.state_dict().items()):
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        value.append(f"{name} {array.shape} {zlib.crc32(array.reshape(-1).view(np.uint8).data):08x}")
    return f"{zlib.crc32(' '.join(value).encode()):08x}"
