"""How the file that a trained model is shown is read."""

from typing import Any


def add_options(parser: Any) -> None:
    """Adds --format and --batch_size."""
    parser.add_argument(
        "--format",
        type=str | None,
        default=None,
        help="of the file: conllu, columns, tsv, text (a sentence a line) or auto; null: as for training",
    )
    parser.add_argument("--batch_size", type=int | None, default=None, help="sentences per batch; null: as trained")
