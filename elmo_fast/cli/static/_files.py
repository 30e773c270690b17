"""Options that the static commands share: vector files, and results as JSON."""

from typing import Any, Literal

from elmo_fast.cli import _common

Format = Literal["auto", "word2vec-binary", "word2vec-text", "glove", "safetensors"]


def add_reading(parser: Any) -> None:
    """Adds the file to read, positional, and how."""
    parser.add_argument("vectors", type=str, help="word2vec's (binary or text) or GloVe's file, .gz or not, or the own")
    parser.add_argument("--format", type=Format, default="auto", help="of that file; auto looks into it")
    parser.add_argument("--limit", type=int | None, default=None, help="read the first so many words only")
    parser.add_argument(
        "--cache",
        type=bool,
        default=True,
        help="keep what a text file of 32 MB or more gave beside it (.cache.safetensors), for the next time",
    )


def read(arguments: Any) -> Any:
    """The Vectors that the options name."""
    from elmo_fast.static import load_vectors

    vectors = load_vectors(arguments.vectors, arguments.format, limit=arguments.limit, cache=arguments.cache)
    _common.logger().info("%s: %d words, %d numbers each", arguments.vectors, len(vectors), vectors.dimension)
    return vectors


def set_up(arguments: Any) -> None:
    """Applies the common options, without torch where nothing asks for it, as it is slow to load."""
    _common.set_up_logging(arguments)
    if arguments.threads is not None:
        _common.set_up(arguments)


def add_output(parser: Any) -> None:
    """Adds the file to write, and how."""
    parser.add_argument(
        "--output", type=str, required=True, help="file to write: .bin, .txt, .vec (+ .gz), .safetensors"
    )
    parser.writes("output")
    parser.add_argument("--output_format", type=Format, default="auto", help="of that file; auto goes by its name")


def write(arguments: Any, vectors: Any) -> None:
    """Writes Vectors to where the options say."""
    from elmo_fast.static import save_vectors

    save_vectors(vectors, arguments.output, arguments.output_format)
    _common.logger().info("%s: %d words, %d numbers each", arguments.output, len(vectors), vectors.dimension)


def check_output(arguments: Any) -> None:
    """Raises ElmoFastError for a name that says no format, before anything takes long."""
    from elmo_fast.static.vectors import writer_of

    writer_of(arguments.output, arguments.output_format)
