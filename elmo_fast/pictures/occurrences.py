"""The occurrences of a word in a text, and their vectors by a biLM."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules.layers import layer_number
from elmo_fast.modules.sentence_vectors import embed_batches
from elmo_fast.text import read_sentences

MOST = 2000


class Occurrence(NamedTuple):
    """A word in a text."""

    line: int
    """which line, from 0"""
    place: int
    """which token of the line, from 0"""
    tokens: Sequence[str]
    """all tokens of the line"""


def find_occurrences(
    path: str | os.PathLike[str], word: str, *, most: int = MOST, match_case: bool = False, seed: int = 0
) -> tuple[list[Occurrence], int]:
    """The occurrences of a word in a text, in order, and their total number.

    Args:
        path: text, one sentence per line, tokens separated by white space, plain or .gz.
        word: a token; upper and lower case are the same unless match_case.
        most: the maximum number; if there are more, a uniform sample by seed.

    Raises: ElmoFastError if there is none, or for text that cannot be read.
    """
    if not word or len(word.split()) != 1:
        raise ElmoFastError(f"word must be one token without white space; got {word!r}")
    check_counts(most=most)
    wanted = word if match_case else word.casefold()
    found = [
        Occurrence(line, place, tokens)
        for line, tokens in read_sentences(path)
        for place, token in enumerate(tokens)
        if (token if match_case else token.casefold()) == wanted
    ]
    if not found:
        raise ElmoFastError(f"word must occur in the text; got {word!r}, which does not occur in {os.fspath(path)}")
    if len(found) <= most:
        return found, len(found)
    chosen = np.sort(np.random.default_rng(seed).choice(len(found), most, replace=False))
    return [found[index] for index in chosen], len(found)


def occurrence_vectors(
    embedder: Any,
    occurrences: Sequence[Occurrence],
    layer: str | int = "top",
    *,
    batch_size: int = 64,
    progress: Callable[[int], None] = lambda tokens: None,
) -> npt.NDArray[np.float32]:
    """The vector of each occurrence in its sentence, [N, 2D] float32.

    Args:
        embedder: an ElmoEmbedder without carried state (stateful=False).
        layer: "top", or a number from 0 (0 has no context).
        batch_size: sentences per batch.
        progress: called with the number of tokens of each finished batch.

    Raises: ElmoFastError.
    """
    if embedder.elmo_bilm.stateful:
        raise ElmoFastError(
            "embedder must be made with stateful=False, as each sentence runs by itself; got stateful=True"
        )
    number = layer_number(layer, embedder.elmo_bilm.num_layers)
    places: dict[int, list[int]] = {}
    for index, occurrence in enumerate(occurrences):
        places.setdefault(occurrence.line, []).append(index)
    lines = list(places)
    sentences = [occurrences[places[line][0]].tokens for line in lines]
    out = np.empty((len(occurrences), embedder.elmo_bilm.get_output_dim()), np.float32)
    for batch in embed_batches(embedder.elmo_bilm, sentences, number, side_by_side=True, batch_size=batch_size):
        for index, vectors in zip(batch.indices, batch.vectors, strict=True):
            for where in places[lines[index]]:
                out[where] = vectors[occurrences[where].place]
        progress(sum(map(len, batch.sentences)))
    return out
