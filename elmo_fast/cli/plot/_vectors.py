"""The vectors that `plot words` and `plot projector` draw: from a file, of words by their characters, or of tokens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.errors import ElmoFastError, check_counts

SHOWN_MISSING = 10


class Labelled(NamedTuple):
    """words: N labels; matrix: [N, D] float32; columns: additional information on each, for a projector."""

    words: list[str]
    matrix: npt.NDArray[np.float32]
    columns: dict[str, list[str]]


def add_options(parser: Any, count: int) -> None:
    """Adds --vectors, or a model with --words, --word_file or --text."""
    parser.option("vectors", str, "word vectors: word2vec, GloVe or safetensors, plain or .gz")
    parser.shared(*_model.OPTIONS)
    parser.option("words", str, "words to draw; with a model: by its character encoder", [], nargs="+")
    parser.option("word_file", str, "file of more words, one per line")
    parser.option("text", str, f"with a model: draw the tokens of this {_common.TEXT}")
    parser.alternatives(["vectors"], _model.NAMES)
    parser.alternatives(["text"], ["words", "word_file"])
    parser.alternatives(["text"], ["vectors"])
    parser.option("layer", str, 'with --text: layer, "top" or a number from 0', "top")
    parser.option("count", int, "maximum number of words (the first) or tokens (a sample)", count)
    parser.shared("batch_size")


def read(arguments: Any) -> Labelled:
    """What the options name; ElmoFastError if they name nothing, or two things."""
    check_counts(**{"--count": arguments.count})
    named = _model.is_named(arguments)
    if named == (arguments.vectors is not None):
        raise ElmoFastError("name either --vectors FILE, or a model with --model or --options_file and --weight_file")
    words = list(dict.fromkeys([*arguments.words, *_words_of(arguments.word_file)]))
    if arguments.text is not None and (words or not named):
        raise ElmoFastError("--text needs a model, and excludes --words and --word_file: its tokens are drawn")
    if not named:
        return _of_file(arguments, words)
    _model.resolve(arguments)
    if arguments.text is not None:
        return _of_tokens(arguments)
    if not words:
        raise ElmoFastError("a model needs words to draw: --words, --word_file, or --text for the tokens of a text")
    return _of_characters(arguments, words[: arguments.count])


def _words_of(path: str | None) -> list[str]:
    from elmo_fast.text import read_lines

    return [] if path is None else [line for _, line in read_lines(path) if line]


def _of_file(arguments: Any, words: list[str]) -> Labelled:
    from elmo_fast.static import load_vectors

    vectors = load_vectors(arguments.vectors)
    if not words:
        words = list(vectors.words[: arguments.count])
    missing = [word for word in words if word not in vectors.index]
    if missing:
        more = f" and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
        said = f"{arguments.vectors} has no vector for {', '.join(map(repr, missing[:SHOWN_MISSING]))}{more}"
        if len(missing) == len(words):
            raise ElmoFastError(said)
        _common.logger().warning("%s", said)
    words = [word for word in words if word in vectors.index][: arguments.count]
    return Labelled(words, vectors.matrix[[vectors.index[word] for word in words]], {})


def _of_characters(arguments: Any, words: list[str]) -> Labelled:
    """Layer 0: the encoder's vector of each word."""
    from elmo_fast.static import context_free_vectors

    bilm = _model.load_embedder(arguments).elmo_bilm
    return Labelled(words, context_free_vectors(bilm, words).matrix, {})


def _of_tokens(arguments: Any) -> Labelled:
    """`count` tokens of a text, drawn by the seed, each in its sentence."""
    from elmo_fast.pictures import Occurrence
    from elmo_fast.text import read_sentences

    text = read_sentences(arguments.text)
    tokens = [Occurrence(line, place, sentence) for line, sentence in text for place in range(len(sentence))]
    if not tokens:
        raise ElmoFastError(f"--text {arguments.text} contains no tokens")
    if len(tokens) > arguments.count:
        chosen = np.random.default_rng(arguments.seed).choice(len(tokens), arguments.count, replace=False)
        _common.logger().info("sampled %d of %d tokens", arguments.count, len(tokens))
        tokens = [tokens[index] for index in np.sort(chosen)]
    matrix, _ = embedded(arguments, tokens)
    columns = {
        "line": [str(token.line + 1) for token in tokens],
        "sentence": [" ".join(token.tokens) for token in tokens],
    }
    return Labelled([token.tokens[token.place] for token in tokens], matrix, columns)


def embedded(arguments: Any, occurrences: Sequence[Any]) -> tuple[npt.NDArray[np.float32], int]:
    """The vectors of tokens in their sentences, and the number of the layer."""
    from elmo_fast.modules.layers import layer_number
    from elmo_fast.pictures import occurrence_vectors

    embedder = _model.load_embedder(arguments)
    number = layer_number(arguments.layer, embedder.elmo_bilm.num_layers)
    total = sum(len(tokens) for tokens in {one.line: one.tokens for one in occurrences}.values())
    with _progress.progress_bar(arguments, total) as progress:
        options = {"batch_size": arguments.batch_size, "progress": progress.add}
        vectors = occurrence_vectors(embedder, occurrences, number, **options)
    return vectors, number
