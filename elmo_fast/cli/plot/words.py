"""`elmo-fast plot words`: words or tokens in two dimensions."""

from typing import Any, Literal

from elmo_fast.cli import _common
from elmo_fast.cli.plot import _vectors

SHOWN = 20


def build_parser() -> Any:
    parser = _common.new_parser(
        "plot words",
        "Draws words with similar vectors close together: the words of a vectors file, words by a model's character "
        "encoder (--model, --words), or the tokens of a text in their sentences (--model, --text).",
    )
    _vectors.add_options(parser, count=300)
    parser.option("method", Literal["tsne", "pca"], "projection to two dimensions", "tsne")
    parser.option("most_labels", int, "maximum number of labels; further words are points without one", 300)
    parser.output("output", "picture to write: .png, .pdf or .svg", "words.png")
    parser.shared("title")
    return parser


def run(arguments: Any) -> int:
    """Reads or computes the vectors, then draws; says which labels had no room."""
    from elmo_fast.pictures import words_picture
    from elmo_fast.pictures.style import format_of

    _common.set_up_logging(arguments)
    format_of(arguments.output)
    words, matrix, _ = _vectors.read(arguments)
    options = _common.named(arguments, "method", "seed", "most_labels", "title")
    drawn = words_picture(words, matrix, arguments.output, **options)
    if drawn.omitted:
        shown = ", ".join(drawn.omitted[:SHOWN]) + (" ..." if len(drawn.omitted) > SHOWN else "")
        _common.logger().info("no room for %d labels: %s", len(drawn.omitted), shown)
    print(arguments.output)
    return 0
