"""The table of `elmo-fast eval --per_sentence`: how well each sentence is predicted."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus import Corpus, is_prepared
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import writing
from elmo_fast.text import files_matching, read_sentences

COLUMNS = ("line", "words", "nats_forward", "nats_backward", "perplexity_forward", "perplexity_backward", "perplexity")
# The largest argument of exp without overflow.
MOST_NATS = 700.0


def write_table(path: str | os.PathLike[str], text: str, corpus: Corpus, losses: npt.NDArray[np.float64]) -> None:
    """Writes one row per sentence, separated by tabs, below a header of COLUMNS.

    text: the source of the corpus, a file, a glob or a prepared folder; losses: of each sentence with its end, in nats,
    [2, sentences]. Perplexities are over words and sentence end; the last is that of the mean loss.

    Raises ElmoFastError if the text has changed since it was read; OSError.
    """
    _, positions = corpus.places(np.arange(corpus.sentences))
    means = np.stack([*losses, losses.mean(0)]) / positions
    perplexities = np.exp(np.minimum(means, MOST_NATS)).T.tolist()
    rows = zip(
        lines_of(text, positions - 1, corpus.tokenizer),
        (positions - 1).tolist(),
        losses.T.tolist(),
        perplexities,
        strict=True,
    )
    with writing(path) as file:
        file.write(("\t".join(COLUMNS) + "\n").encode())
        for line, words, nats, perplexity in rows:
            numbers = "\t".join(f"{number:.8g}" for number in (*nats, *perplexity))
            file.write(f"{line}\t{words}\t{numbers}\n".encode())


def lines_of(text: str, words: npt.NDArray[np.int64], tokenizer: str | None = None) -> Sequence[int]:
    """The line of each sentence, counted from 1 through all files; for a prepared corpus, without lines, its number.

    words: of each sentence, to detect a changed text. Raises ElmoFastError if it has changed.
    """
    if is_prepared(text):
        return range(1, len(words) + 1)
    sentences: Any = (tokens for file in files_matching(text) for _, tokens in read_sentences(file, tokenizer))
    counts = np.fromiter(map(len, sentences), np.int64)
    lines = np.flatnonzero(counts)
    if not np.array_equal(counts[lines], words):
        raise ElmoFastError(f"--test_prefix {text} changed while being read; run the command again")
    return (lines + 1).tolist()
