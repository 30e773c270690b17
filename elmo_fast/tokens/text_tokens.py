"""All tokens of a text with their vectors in context, among which neighbours are searched; a token as text."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo_fast.modules import ElmoEmbedder
from elmo_fast.static.neighbours import Nearest, nearest

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
