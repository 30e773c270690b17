"""One word in two senses: which tokens of the text have the most similar vectors, context by context."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.modules import ElmoEmbedder

TOPN = 8
CONTEXT = 4

# (word, (what it is there, sentence) twice): one word in two uses, both of which occur in the text.
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
    """A token of the text: cosine of its vector to the query's, and where it stands."""

    cosine: float
    sentence: int
    place: int


class TokenVectors:
    """The directions of every token of some sentences, by one layer of the model, seen from their common mean.

    vectors: [tokens, 2D] float32; sentence, place: of each token, [tokens].
    """

    def __init__(self, embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], layer: int) -> None:
        arrays = [array[layer] for array in embedder.embed_sentences(sentences)]
        self.sentences = sentences
        everything = np.concatenate(arrays)
        self.mean = everything.mean(axis=0)
        self.vectors = unit(everything - self.mean)
        self.sentence = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
        self.place = np.concatenate([np.arange(len(array)) for array in arrays])

    def nearest(self, vector: npt.NDArray[np.float32], topn: int, but: str = "") -> list[Neighbour]:
        """The tokens nearest to a vector, each word once, `but` itself left out."""
        cosines = self.vectors @ unit(vector - self.mean)
        found: dict[str, Neighbour] = {}
        for index in np.argsort(-cosines):
            neighbour = Neighbour(float(cosines[index]), int(self.sentence[index]), int(self.place[index]))
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
        """The token with a few of its neighbours, itself between brackets."""
        tokens, place = self.sentences[neighbour.sentence], neighbour.place
        before = tokens[max(0, place - CONTEXT) : place]
        return " ".join([*before, f"[{tokens[place]}]", *tokens[place + 1 : place + 1 + CONTEXT]])


def unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Vectors divided by their length."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def query_vector(embedder: ElmoEmbedder, sentence: str, word: str, layer: int) -> npt.NDArray[np.float32]:
    """The vector of the first `word` of a sentence."""
    tokens = sentence.split()
    return embedder.embed_sentence(tokens)[layer][tokens.index(word)]
