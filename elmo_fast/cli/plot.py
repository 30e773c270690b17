"""`elmo-fast plot`: pictures of runs, layers, words and senses."""

import os
import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmo_fast.cli import _common
from elmo_fast.cli._parser import COMPUTING, MODEL_OPTIONS, TEXT, Parser
from elmo_fast.errors import ElmoFastError, check_counts

SHOWN_MISSING = 10
# N labels; their vectors, [N, D] float32; and additional columns of N texts, for a projector.
Labelled = tuple[list[str], npt.NDArray[np.float32], dict[str, list[str]]]


def add_vector_options(parser: Any, count: int) -> None:
    """Add --vectors, or a model with --words, --word_file or --text; and the common options."""
    parser.shared(*COMPUTING)
    parser.input("vectors", "word vectors: word2vec, GloVe or safetensors, plain or .gz", standard_input="copied")
    parser.shared(*MODEL_OPTIONS, "tokenizer")
    parser.option("words", str, "words to draw; with a model: by its character encoder", [], nargs="+")
    parser.input("word_file", "file of more words, one per line", standard_input="copied")
    parser.input("text", f"with a model: draw the tokens of this {TEXT}", standard_input="copied")
    parser.option("layer", str, 'with --text: layer, "top" or a number from 0', "top")
    parser.option("count", int, "maximum number of words (the first) or tokens (a sample)", count)
    parser.shared("batch_size")


def read_vectors(arguments: Any) -> Labelled:
    """Return what the options name; ElmoFastError if they name nothing, or two things."""
    from elmo_fast.text import read_lines

    check_counts(**{"--count": arguments.count})
    named = _common.names_model(arguments)
    if named == (arguments.vectors is not None):
        raise ElmoFastError("name either --vectors FILE, or a model with --model or --options_file and --weight_file")
    listed = [] if arguments.word_file is None else [line for _, line in read_lines(arguments.word_file) if line]
    words = list(dict.fromkeys([*arguments.words, *listed]))
    if arguments.text is not None and (words or not named):
        raise ElmoFastError("--text needs a model, and excludes --words and --word_file: its tokens are drawn")
    if arguments.text is None and (arguments.layer != "top" or arguments.tokenizer is not None):
        raise ElmoFastError("--layer and --tokenizer need --text: words without a text have no layers")
    if not named:
        return _of_file(arguments, words)
    _common.resolve_model(arguments)
    if arguments.text is not None:  # `count` tokens, sampled by the seed, each in its sentence
        tokens, _, matrix, _ = in_sentences(arguments, None, most=arguments.count)
        columns = {
            "line": [str(token.line + 1) for token in tokens],
            "sentence": [" ".join(token.tokens) for token in tokens],
        }
        return [token.tokens[token.place] for token in tokens], matrix, columns
    if not words:
        raise ElmoFastError("a model needs words to draw: --words, --word_file, or --text for the tokens of a text")
    from elmo_fast.static import context_free_vectors

    words = words[: arguments.count]
    return words, context_free_vectors(_common.load_embedder(arguments).elmo_bilm, words).matrix, {}


def _of_file(arguments: Any, words: list[str]) -> Labelled:
    from elmo_fast.static import load_vectors

    vectors = load_vectors(arguments.vectors)
    if not words:
        words = list(vectors.words[: arguments.count])
    missing = [word for word in words if word not in vectors.index]
    if missing:
        more = f" and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
        message = f"{arguments.vectors} has no vector for {', '.join(map(repr, missing[:SHOWN_MISSING]))}{more}"
        if len(missing) == len(words):
            raise ElmoFastError(message)
        warnings.warn(message, stacklevel=2)
    words = [word for word in words if word in vectors.index][: arguments.count]
    return (words, vectors.matrix[[vectors.index[word] for word in words]], {})


def in_sentences(arguments: Any, word: str | None, **options: Any) -> tuple[list[Any], int, npt.NDArray[Any], int]:
    """Return occurrences of a word of --text (None: of all), how many there are, their vectors, the layer's number."""
    from elmo_fast.embed.layers import layer_number
    from elmo_fast.pictures import find_occurrences, occurrence_vectors

    options |= {"seed": arguments.seed, "tokenizer": _common.tokenizer_of(arguments)}
    occurrences, every = find_occurrences(arguments.text, word, **options)
    if every > len(occurrences):
        _common.logger().info("sampled %d of %d tokens", len(occurrences), every)
    embedder = _common.load_embedder(arguments)
    number = layer_number(arguments.layer, embedder.elmo_bilm.num_layers)
    total = sum(len(tokens) for tokens in {one.line: one.tokens for one in occurrences}.values())
    with _common.Progress(arguments, total) as progress:
        vectors = occurrence_vectors(
            embedder, occurrences, number, batch_size=arguments.batch_size, progress=progress.add
        )
    return occurrences, every, vectors, number


def curves_options(parser: Parser) -> None:
    parser.add_argument("run", type=str, help="folder of the run (--save_dir of `elmo-fast pretrain`)")
    parser.reads("run")
    parser.output("output", "picture to write: .png, .pdf or .svg (default: RUN/curves.png)")
    parser.input("also", "folders of other runs to draw in the same picture", default=[], nargs="+", metavar="RUN")


def run_curves(arguments: Any) -> None:
    """Draw the perplexity, speed and gradient norm of a pretraining run, finished or not, from its metrics.jsonl."""
    from elmo_fast.pictures import draw_curves
    from elmo_fast.pretrain.metrics import read_metrics

    folders = [os.path.normpath(folder) for folder in (arguments.run, *arguments.also)]
    output = arguments.output or os.path.join(folders[0], "curves.png")
    draw_curves({folder: read_metrics(folder) for folder in folders}, output)
    print(output)


def layers_options(parser: Parser) -> None:
    parser.add_argument("source", type=str, nargs="+", help="folder of a model or task, or its results.json")
    parser.reads("source")
    parser.shared("prefix")
    parser.output("output", "picture to write: .png, .pdf or .svg", "layers.png")
    parser.shared("title")


def run_layers(arguments: Any) -> None:
    """Draw how much the scalar mixes of models (Elmo.save_pretrained) or trained tasks use each layer."""
    from elmo_fast.pictures import layer_weights, read_layer_weights

    groups: dict[str, list[float]] = {}
    for source in arguments.source:
        before = f"{os.path.normpath(source)}: " if len(arguments.source) > 1 else ""
        groups |= {before + name: weights for name, weights in read_layer_weights(source, arguments.prefix).items()}
    layer_weights(groups, arguments.output, arguments.title)
    for name, weights in groups.items():
        _common.logger().info("%s  %s", name, "  ".join(f"{weight:.3f}" for weight in weights))
    print(arguments.output)


MOST_LISTED = 20


def words_options(parser: Parser) -> None:
    add_vector_options(parser, count=300)
    parser.option("method", Literal["tsne", "pca"], "projection to two dimensions", "tsne")
    parser.option("most_labels", int, "maximum number of labels; further words are points without one", 300)
    parser.output("output", "picture to write: .png, .pdf or .svg", "words.png")
    parser.shared("title")


def run_words(arguments: Any) -> None:
    """Draw words with similar vectors close together.

    They are the words of a vectors file, words by a model's character encoder (--model, --words), or the tokens of a
    text in their sentences (--model, --text).
    """
    from elmo_fast.pictures import words_picture
    from elmo_fast.pictures.style import format_of

    format_of(arguments.output)
    words, matrix, _ = read_vectors(arguments)
    options = _common.named(arguments, "method", "seed", "most_labels", "title")
    result = words_picture(words, matrix, arguments.output, **options)
    if result.omitted:
        omitted = ", ".join(result.omitted[:MOST_LISTED]) + (" ..." if len(result.omitted) > MOST_LISTED else "")
        _common.logger().info("words whose label has no room: %s", omitted)
    print(arguments.output)


def senses_options(parser: Parser) -> None:
    parser.shared(*COMPUTING, *MODEL_OPTIONS, "tokenizer")
    parser.option("word", str, "the word, a token of the text", required=True)
    parser.input("text", TEXT, standard_input="copied", required=True)
    parser.output("output", "files to write: .html, .png, .pdf, .svg", ["senses.html"], nargs="+")
    parser.option("layer", str, 'layer: "top" or a number from 0 (0 has no context)', "top")
    parser.option("clusters", str, 'number of clusters, or "auto" (the best silhouette)', "auto")
    parser.option("clustering", Literal["kmeans", "agglomerative"], "method of clustering", "kmeans")
    parser.option("method", Literal["pca", "tsne"], "projection to two dimensions", "pca")
    parser.option("match_case", None, "distinguish upper and lower case")
    parser.option("most", int, "maximum number of occurrences, sampled by --seed", 2000)
    parser.shared("batch_size")


def run_senses(arguments: Any) -> None:
    """Draw each occurrence of a word in a text as a point, by its vector in its sentence, coloured by cluster.

    A .html page shows the sentence of the point under the mouse.
    """
    from elmo_fast.pictures import senses_of, senses_picture, write_senses_page
    from elmo_fast.pictures.style import format_of

    pages = [output for output in arguments.output if output.lower().endswith((".html", ".htm"))]
    for output in arguments.output:
        if output not in pages:
            format_of(output)
    if arguments.clusters != "auto" and not arguments.clusters.isdecimal():
        raise ElmoFastError(f'--clusters must be "auto" or a number; got {arguments.clusters!r}')
    _common.resolve_model(arguments)
    chosen = _common.named(arguments, "most", "match_case")
    occurrences, total, vectors, number = in_sentences(arguments, arguments.word, **chosen)
    model = os.path.basename(os.path.normpath(arguments.model or arguments.weight_file))
    about = f"{os.path.basename(arguments.text)}, layer {number} of {model}"
    clusters = arguments.clusters if arguments.clusters == "auto" else int(arguments.clusters)
    senses = senses_of(occurrences, vectors, clusters, **_common.named(arguments, "clustering", "method", "seed"))
    if total > len(occurrences):
        about = f"{len(occurrences)} of {total} occurrences in {about}"
    for cluster, (size, typical) in enumerate(zip(senses.sizes, senses.typical, strict=True), start=1):
        _common.logger().info("cluster %d, size %d: %s", cluster, size, ", ".join(typical) or "no typical words")
    for output in arguments.output:
        if output in pages:
            write_senses_page(senses, occurrences, arguments.word, output, about)
        else:
            senses_picture(senses, arguments.word, output, about)
        print(output)


def projector_options(parser: Parser) -> None:
    add_vector_options(parser, count=10_000)
    parser.option("out_dir", str, "folder to write", required=True)
    parser.writes("out_dir", "tensors.tsv", "metadata.tsv", "projector_config.pbtxt")


def run_projector(arguments: Any) -> None:
    """Write tensors.tsv, metadata.tsv and projector_config.pbtxt, which `tensorboard --logdir OUT_DIR` shows.

    projector.tensorflow.org loads the first two. The vectors are chosen as for `elmo-fast plot words`.
    """
    from elmo_fast.pictures import write_projector

    words, matrix, columns = read_vectors(arguments)
    folder = write_projector(words, matrix, arguments.out_dir, columns)
    _common.logger().info("%d vectors of %d numbers; to view them: tensorboard --logdir %s", *matrix.shape, folder)
    print(folder)
