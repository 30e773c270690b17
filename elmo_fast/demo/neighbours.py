"""One word in two senses: the tokens of the text with the most similar vectors, in each context."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.modules import ElmoEmbedder
from elmo_fast.tokens import TextTokens, in_context

TOPN = 8
CONTEXT = 4

# (word, two pairs of (meaning, sentence)): one word in two uses, both of which occur in the text.
QUERIES = (
    (
        "set",
        ("a collection", "Return a new set with elements from the set and all others ."),
        ("to give a value", "This attribute is set to True if the file is not closed ."),
    ),
    (
        "return",
        ("a noun", "The return value of the function is a string ."),
        ("a verb", "This method should return a list of strings ."),
    ),
    (
        "left",
        ("a side", "The left operand of the operator is evaluated first ."),
        ("remaining", "If there is nothing left to read , return an empty string ."),
    ),
)


class Neighbour(NamedTuple):
    """A token of the text: the cosine of its vector with the query's, and its position."""

    cosine: float
    sentence: int
    place: int


class WordNeighbours(TextTokens):
    """The tokens of the text by one layer of the model, with their mean subtracted."""

    def nearest_words(self, vector: npt.NDArray[np.float32], topn: int, but: str = "") -> list[Neighbour]:
        """The tokens nearest to a vector, each word once, without `but`."""
        every = self.nearest(vector[None], len(self.vectors))
        found: dict[str, Neighbour] = {}
        for index, cosine in zip(every.rows[0].tolist(), every.cosines[0].tolist(), strict=True):
            neighbour = Neighbour(cosine, *self.where(index))
            word = self.word(neighbour).lower()
            if word not in found and word != but:
                found[word] = neighbour
                if len(found) == topn:
                    break
        return list(found.values())

    def word(self, neighbour: Neighbour) -> str:
        """The token itself."""
        return self.sentences[neighbour.sentence][neighbour.place]

    def in_context(self, neighbour: Neighbour) -> str:
        """The token in brackets, with a few words around it."""
        return in_context(self.sentences[neighbour.sentence], neighbour.place, CONTEXT)


def query_vector(embedder: ElmoEmbedder, sentence: str, word: str, layer: int) -> npt.NDArray[np.float32]:
    """The vector of the first `word` of a sentence."""
    tokens = sentence.split()
    return embedder.embed_sentence(tokens)[layer][tokens.index(word)]
