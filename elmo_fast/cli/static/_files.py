"""Options that the static commands share: vector files, and results as JSON."""

from typing import Any, Literal

from elmo_fast.cli import _common

Format = Literal["auto", "word2vec-binary", "word2vec-text", "glove", "safetensors"]


def add_reading(parser: Any) -> None:
    """Adds the file to read, positional, and how."""
    parser.add_argument(
        "vectors", type=str, help="word vectors: word2vec (binary or text), GloVe or safetensors, plain or .gz"
    )
    parser.option("format", Format, "format of the file; auto detects it", "auto")
    parser.option("limit", int, "read only the first N words")
    parser.option("cache", bool, "cache a text file of 32 MB or more, as FILE.cache.safetensors", True)


def read(arguments: Any) -> Any:
    """The Vectors that the options name."""
    from elmo_fast.static import load_vectors

    vectors = load_vectors(arguments.vectors, arguments.format, limit=arguments.limit, cache=arguments.cache)
    _common.logger().info("%s: %d words, %d numbers each", arguments.vectors, len(vectors), vectors.dimension)
    return vectors


def set_up(arguments: Any) -> None:
    """Applies the common options, without torch, which is slow to load, unless it is needed."""
    _common.set_up_logging(arguments)
    if arguments.threads is not None:
        _common.set_up(arguments)


def add_output(parser: Any) -> None:
    """Adds the file to write, and how."""
    parser.output("output", "file to write: .bin, .txt or .vec (or these with .gz), or .safetensors", required=True)
    parser.option("output_format", Format, "format of the output; auto: by the name", "auto")


def write(arguments: Any, vectors: Any) -> None:
    """Writes Vectors to the file in the options."""
    from elmo_fast.static import save_vectors

    save_vectors(vectors, arguments.output, arguments.output_format)
    _common.logger().info("%s: %d words, %d numbers each", arguments.output, len(vectors), vectors.dimension)


def check_output(arguments: Any) -> None:
    """Raises ElmoFastError for a name without a known format, before any long work."""
    from elmo_fast.static.vectors import writer_of

    writer_of(arguments.output, arguments.output_format)
