"""word2vec by gensim: skip-gram or CBOW, with negative sampling or a hierarchical softmax."""

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from elmo_fast.embed.word_vectors import Vectors
from elmo_fast.errors import ElmoFastError, check_choice, check_counts, require
from elmo_fast.op_choices import Tokenizer
from elmo_fast.text.sources import sentences_of

ALGORITHMS = ("sg", "cbow")
OBJECTIVES = ("ns", "hs")


class Epoch(NamedTuple):
    """A finished pass over the text: its number from 1, of how many, its seconds, words of text per second.

    negative: random words per true one, 0 with a hierarchical softmax.
    """

    number: int
    epochs: int
    negative: int
    seconds: float
    words_per_second: float


def default_negative(words: int) -> int:
    """Return how many random words a text of so many words needs: more for a small one.

    Source: Mikolov et al. 2013, arXiv:1310.4546, section 2.2: 5 to 20 for small texts, 2 to 5 for large ones.
    """
    return 10 if words < 10**7 else 5 if words < 10**9 else 3


def train_word2vec(
    path: str | os.PathLike[str],
    *,
    algorithm: str = "sg",
    objective: str = "ns",
    dimension: int = 100,
    window: int = 5,
    min_count: int = 5,
    max_vocab_size: int | None = None,
    negative: int | None = None,
    sample: float = 1e-3,
    epochs: int = 5,
    learning_rate: float = 0.025,
    init_from: Vectors | None = None,
    workers: int = 1,
    seed: int = 0,
    report: Callable[[Epoch], None] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Vectors:
    """Train word vectors on a text, the most frequent words first.

    path: one sentence per line, words separated by spaces: a file, a folder or a glob; gensim reads a temporary copy
    algorithm: "sg" (skip-gram) or "cbow"
    objective: "ns" (negative sampling) or "hs" (hierarchical softmax)
    dimension, window: D; maximum words on each side, drawn from 1 to this number
    min_count, max_vocab_size: words that occur less often, or are not among the most frequent, are left out of the text
        (and those that occur as often as the first one left out, so that max_vocab_size is an upper bound)
    negative: random words per true one (objective "ns"); None: 10 for a text below 10 million words, 5 below a billion,
        3 for a larger one
    sample: words with a larger share of the text are dropped at random
    epochs, learning_rate: passes; the initial step size, which decreases to 0.0001
    init_from: vectors to continue from, of width D: their words start there, others and the output vectors as usual
    workers: threads; with more than 1, the same seed gives different vectors every time
    report: called after every pass, without a loss: gensim's is wrong for several threads and for
        skip-gram with hierarchical softmax (gensim #2135, #3397)
    tokenizer: one of elmo_fast.text.TOKENIZERS; None splits at white space
    Raises MissingExtraError without gensim, ElmoFastError for wrong options, text that is not UTF-8, and if no word is
    frequent enough or no sentence has two such words.
    Source: Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546.
    """
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_choice("objective", objective, OBJECTIVES)
    check_counts(
        dimension=dimension, window=window, min_count=min_count, max_vocab_size=max_vocab_size, negative=negative,
        epochs=epochs, workers=workers,
    )  # fmt: skip
    if init_from is not None:
        init_from.check_width(dimension)
    models = require("gensim.models", "static", "Training word2vec")

    class Passes(models.callbacks.CallbackAny2Vec):  # type: ignore[name-defined]
        """Reports each pass and its time."""

        number, start = 0, 0.0

        def on_epoch_begin(self, model: Any) -> None:
            self.start = time.monotonic()

        def on_epoch_end(self, model: Any) -> None:
            self.number += 1
            seconds = time.monotonic() - self.start
            if report is not None:
                speed = model.corpus_total_words / max(seconds, 1e-9)
                report(Epoch(self.number, epochs, model.negative, seconds, speed))

    # One file that gensim reads as `sentences_of` does: with single spaces, not packed.
    with tempfile.NamedTemporaryFile("w", prefix="elmo-fast-", encoding="utf-8", newline="\n") as corpus:
        corpus.writelines(f"{' '.join(sentence.tokens)}\n" for sentence in sentences_of(os.fspath(path), tokenizer))
        corpus.flush()
        model = models.Word2Vec(
            vector_size=dimension, window=window, min_count=min_count, max_final_vocab=max_vocab_size,
            sg=int(algorithm == "sg"), hs=int(objective == "hs"), negative=(negative or 5) if objective == "ns" else 0,
            sample=sample, alpha=learning_rate, workers=workers, seed=seed,
        )  # fmt: skip
        # gensim reads a file in C, so that workers do not wait for Python. Not with a hierarchical softmax: then even
        # one worker of gensim 4.4.0 gives different vectors every time.
        text: dict[str, Any] = {"corpus_file": corpus.name}
        if objective == "hs":
            text = {"corpus_iterable": models.word2vec.LineSentence(corpus.name)}
        model.build_vocab(**text)
        if not len(model.wv):
            more = f" (or more than max_vocab_size={max_vocab_size} do, equally often)" if max_vocab_size else ""
            raise ElmoFastError(f"{path}: no word occurs min_count={min_count} times; give a smaller min_count{more}")
        if objective == "ns" and negative is None:
            model.negative = default_negative(model.corpus_total_words)
        if init_from is not None:
            init_from.copy_to(model.wv.index_to_key, model.wv.vectors)
        total = {"total_examples": model.corpus_count, "total_words": model.corpus_total_words}
        trained, _ = model.train(**text, **total, epochs=epochs, callbacks=[Passes()])
        if not trained:
            why = f"sample={sample} dropped every word of the text, so nothing was learned"
            raise ElmoFastError(f"{path}: {why}; give sample=0, or more text")
    return Vectors(list(model.wv.index_to_key), np.array(model.wv.vectors, np.float32))
