"""Options for reading the input of a trained model."""

from typing import Any


def add_options(parser: Any) -> None:
    """Adds --format and --batch_size."""
    parser.add_argument(
        "--format",
        type=str | None,
        default=None,
        help="of the file: conllu, columns, tsv, text (one sentence per line) or auto; null: as in training",
    )
    parser.add_argument("--batch_size", type=int | None, default=None, help="sentences per batch; null: as in training")
