"""One word in two senses: the tokens of the text with the most similar vectors, in each context."""

import numpy as np
import numpy.typing as npt

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


class WordNeighbours(TextTokens):
    """The tokens of the text by one layer of the model, with their mean subtracted."""

    def nearest_words(self, vector: npt.NDArray[np.float32], topn: int, but: str = "") -> dict[str, tuple[float, str]]:
        """The `topn` lower-case words with the nearest tokens, without `but` -> cosine and context of that token."""
        every = self.nearest(vector[None], len(self.vectors))
        found: dict[str, tuple[float, str]] = {}
        for index, cosine in zip(every.rows[0].tolist(), every.cosines[0].tolist(), strict=True):
            sentence, place = self.where(index)
            tokens = self.sentences[sentence]
            word = tokens[place].lower()
            if word not in found and word != but:
                found[word] = cosine, in_context(tokens, place, CONTEXT)
                if len(found) == topn:
                    break
        return found
