"""`elmo-fast plot`: pictures of runs, layers, words and senses."""

import os
import shlex
import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_file import replaces
from elmo_fast.cli import _common
from elmo_fast.cli._parser import TEXT, Command, Model, flag, option
from elmo_fast.errors import ElmoFastError, check_counts, shortened
from elmo_fast.op_choices import Tokenizer

# N labels; their vectors, [N, D] float32; and additional columns of N texts, for a projector.
Labelled = tuple[list[str], npt.NDArray[np.float32], dict[str, list[str]]]


class _VectorOptions(Model):
    """Options that name vectors: of a file, or of a model with --words, --word_file or --text."""

    vectors: str | None = None
    """word vectors: word2vec, GloVe or safetensors, plain or .gz"""
    tokenizer: Tokenizer | None = None
    words: tuple[str, ...] = option((), nargs="+")
    """words to draw; with a model: by its character encoder"""
    word_file: str | None = None
    """file of more words, one per line"""
    text: str | None = option(None, help=f"with a model: draw the tokens of this {TEXT}")
    layer: str = "top"
    """with --text: layer, "top" or a number from 0"""
    count: int = 300
    """maximum number of words (the first) or tokens (a sample)"""
    batch_size: int | None = None


def read_vectors(options: _VectorOptions, *, pairs: bool = False) -> Labelled:
    """Return what the options name; ElmoFastError if they name nothing, or two things.

    pairs: the words are pairs of --arrows: one may occur in several, and none may be missing.
    """
    from elmo_fast.text import read_lines

    check_counts(**{"--count": options.count})
    named = _common.names_model(options)
    if named == (options.vectors is not None):
        raise ElmoFastError("name either --vectors FILE, or a model with --model or --options_file and --weight_file")
    listed = [] if options.word_file is None else [line for _, line in read_lines(options.word_file) if line]
    words = [*options.words, *listed] if pairs else list(dict.fromkeys([*options.words, *listed]))
    if pairs and not words:
        raise ElmoFastError("--arrows needs --words, in pairs: --words man king woman queen")
    if options.text is not None and (words or not named):
        raise ElmoFastError("--text needs a model, and excludes --words and --word_file: its tokens are drawn")
    if options.text is None and (options.layer != "top" or options.tokenizer is not None):
        raise ElmoFastError("--layer and --tokenizer need --text: words without a text have no layers")
    if not named:
        return _of_file(options, words, pairs)
    _common.resolve_model(options)
    if options.text is not None:  # `count` tokens, sampled by the seed, each in its sentence
        tokens, _, matrix, _ = in_sentences(options, None, most=options.count)
        columns = {
            "line": [str(token.line + 1) for token in tokens],
            "sentence": [" ".join(token.tokens) for token in tokens],
        }
        return [token.tokens[token.place] for token in tokens], matrix, columns
    if not words:
        raise ElmoFastError("a model needs words to draw: --words, --word_file, or --text for the tokens of a text")
    from elmo_fast.static import context_free_vectors

    words = words[: options.count]
    return words, context_free_vectors(_common.load_embedder(options).elmo_bilm, words).matrix, {}


def _of_file(options: _VectorOptions, words: list[str], pairs: bool) -> Labelled:
    from elmo_fast.static import load_vectors

    vectors = load_vectors(options.vectors)
    if not words:
        words = list(vectors.words[: options.count])
    missing = [word for word in words if word not in vectors.index]
    if missing:
        message = f"{options.vectors} has no vector for {shortened(', '.join(map(repr, missing)))}"
        if pairs or len(missing) == len(words):
            raise ElmoFastError(message)
        warnings.warn(message, stacklevel=2)
    words = [word for word in words if word in vectors.index][: options.count]
    return (words, vectors.matrix[[vectors.index[word] for word in words]], {})


def in_sentences(
    options: "_VectorOptions | _SensesOptions", word: str | None, **chosen: Any
) -> tuple[list[Any], int, npt.NDArray[Any], int]:
    """Return occurrences of a word of --text (None: of all), how many there are, their vectors, the layer's number."""
    from elmo_fast.embed.layers import layer_number
    from elmo_fast.pictures import find_occurrences, occurrence_vectors

    chosen |= {"seed": options.seed, "tokenizer": _common.tokenizer_of(options)}
    occurrences, every = find_occurrences(str(options.text), word, **chosen)
    if every > len(occurrences):
        _common.logger().info("sampled %d of %d tokens", len(occurrences), every)
    embedder = _common.load_embedder(options)
    number = layer_number(options.layer, embedder.elmo_bilm.num_layers)
    total = sum(map(len, {tuple(one.tokens) for one in occurrences}))
    with _common.Progress(options, total) as progress:
        vectors = occurrence_vectors(
            embedder, occurrences, number, batch_size=options.batch_size, progress=progress.add
        )
    return occurrences, every, vectors, number


class _CurvesOptions(Command):
    run: str = option(positional=True)
    """folder of the run (--save_dir of `elmo-fast pretrain`)"""
    output: str | None = option(None, writes="file")
    """picture to write: .png, .pdf or .svg (default: RUN/curves.png)"""
    also: tuple[str, ...] = option((), nargs="+", metavar="RUN")
    """folders of other runs to draw in the same picture"""


def run_curves(options: _CurvesOptions) -> None:
    """Draw the perplexity, speed and gradient norm of a pretraining run, finished or not, from its metrics.jsonl."""
    from elmo_fast.pictures import draw_curves
    from elmo_fast.pretrain.metrics import read_metrics

    folders = [os.path.normpath(folder) for folder in (options.run, *options.also)]
    output = options.output or os.path.join(folders[0], "curves.png")
    draw_curves({folder: read_metrics(folder) for folder in folders}, output)
    print(output)


class _LayersOptions(Command):
    source: tuple[str, ...] = option(positional=True, nargs="+")
    """folder of a model or task, or its results.json"""
    prefix: str | None = None
    output: str = option("layers.png", writes="file")
    """picture to write: .png, .pdf or .svg"""
    title: str = ""


def run_layers(options: _LayersOptions) -> None:
    """Draw how much the scalar mixes of models (Elmo.save_pretrained) or trained tasks use each layer."""
    from elmo_fast.pictures import layer_weights, read_layer_weights

    groups: dict[str, list[float]] = {}
    for source in options.source:
        before = f"{os.path.normpath(source)}: " if len(options.source) > 1 else ""
        groups |= {before + name: weights for name, weights in read_layer_weights(source, options.prefix).items()}
    layer_weights(groups, options.output, options.title)
    for name, weights in groups.items():
        _common.logger().info("%s  %s", name, "  ".join(f"{weight:.3f}" for weight in weights))
    print(options.output)


class _WordsOptions(_VectorOptions):
    method: Literal["tsne", "pca"] | None = None
    """projection to two dimensions (default: tsne; pca with --arrows)"""
    arrows: bool = flag()
    """draw an arrow from the first of --words to the second, from the third to the fourth, ...; those of an analogy are
    parallel"""
    most_labels: int = 300
    """maximum number of labels; further words are points without one"""
    output: str = option("words.png", writes="file")
    """picture to write: .png, .pdf or .svg"""
    title: str = ""


def run_words(options: _WordsOptions) -> None:
    """Draw words with similar vectors close together.

    They are the words of a vectors file, words by a model's character encoder (--model, --words), or the tokens of a
    text in their sentences (--model, --text).
    """
    from elmo_fast.pictures import words_picture
    from elmo_fast.pictures.style import format_of

    format_of(options.output)
    words, matrix, _ = read_vectors(options, pairs=options.arrows)
    keywords = _common.arguments(options, "method", "arrows", "seed", "most_labels", "title")
    result = words_picture(words, matrix, options.output, **keywords)
    if result.omitted:
        _common.logger().info("words whose label has no room: %s", shortened(", ".join(result.omitted)))
    print(options.output)


class _SensesOptions(Model):
    tokenizer: Tokenizer | None = None
    word: str
    """the word, a token of the text"""
    text: str = option(help=TEXT)
    output: tuple[str, ...] = option(("senses.html",), writes="file", nargs="+")
    """files to write: .html, .png, .pdf, .svg"""
    layer: str = "top"
    """layer: "top" or a number from 0 (0 has no context)"""
    clusters: int | Literal["auto"] = "auto"
    """number of clusters, or "auto" (the best silhouette)"""
    clustering: Literal["kmeans", "agglomerative"] = "kmeans"
    """method of clustering"""
    method: Literal["pca", "tsne"] = "pca"
    """projection to two dimensions"""
    match_case: bool = flag()
    """distinguish upper and lower case"""
    most: int = 2000
    """maximum number of occurrences, sampled by --seed"""
    batch_size: int | None = None


def run_senses(options: _SensesOptions) -> None:
    """Draw each occurrence of a word in a text as a point, by its vector in its sentence, coloured by cluster.

    A .html page shows the sentence of the point under the mouse.
    """
    from elmo_fast.pictures import senses_of, senses_picture, write_senses_page
    from elmo_fast.pictures.style import format_of

    pages = [output for output in options.output if output.lower().endswith((".html", ".htm"))]
    for output in options.output:
        if output not in pages:
            format_of(output)
    _common.resolve_model(options)
    chosen = _common.arguments(options, "most", "match_case")
    occurrences, total, vectors, number = in_sentences(options, options.word, **chosen)
    model = os.path.basename(os.path.normpath(options.model or str(options.weight_file)))
    text = "standard input" if options.text == "-" else os.path.basename(options.text)
    about = f"{text}, layer {number} of {model}"
    keywords = _common.arguments(options, "clusters", "clustering", "method", "seed")
    senses = senses_of(occurrences, vectors, **keywords)
    if total > len(occurrences):
        about = f"{len(occurrences)} of {total} occurrences in {about}"
    for cluster, (size, typical) in enumerate(zip(senses.sizes, senses.typical, strict=True), start=1):
        _common.logger().info("cluster %d, size %d: %s", cluster, size, ", ".join(typical) or "no typical words")
    for output in options.output:
        if output in pages:
            write_senses_page(senses, occurrences, options.word, output, about)
        else:
            senses_picture(senses, options.word, output, about)
        print(output)


class _ProjectorOptions(_VectorOptions):
    count: int = 10_000
    """maximum number of words (the first) or tokens (a sample)"""
    out_dir: str
    """folder to write"""


def run_projector(options: _ProjectorOptions) -> None:
    """Write tensors.tsv, metadata.tsv and projector_config.pbtxt, which `tensorboard --logdir OUT_DIR` shows.

    projector.tensorflow.org loads the first two. The vectors are chosen as for `elmo-fast plot words`.
    """
    from elmo_fast.pictures import write_projector

    for file in filter(None, (options.vectors, options.word_file, options.text)):
        written = os.path.join(options.out_dir, os.path.basename(file))
        if os.path.basename(file) in ("tensors.tsv", "metadata.tsv") and replaces(written, file):
            raise ElmoFastError(f"--out_dir: {written} is the same file as {file}, which is read; choose another")
    words, matrix, columns = read_vectors(options)
    folder = write_projector(words, matrix, options.out_dir, columns)
    view = f"tensorboard --logdir {shlex.quote(str(folder))}"
    _common.logger().info("%d vectors of %d numbers; to view them: %s", *matrix.shape, view)
    print(folder)
