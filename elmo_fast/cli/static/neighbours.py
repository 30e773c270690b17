"""`elmo-fast static neighbours`: the words nearest to words."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli.static import _files
from elmo_fast.errors import ElmoFastError


def build_parser() -> Any:
    """The options of `elmo-fast static neighbours`."""
    parser = _common.new_parser(
        "static neighbours",
        "Lists the words whose vectors have the greatest cosine with a word's: one table a word. For tokens in their "
        "sentences see `elmo-fast neighbours`.",
    )
    _files.add_reading(parser)
    parser.add_argument("--words", type=str, required=True, help="one or more words, parted by blanks")
    parser.add_argument("--topn", type=int, default=10, help="how many to list")
    parser.add_argument("--results", type=str | None, default=None, help="JSON file to write them to as well")
    return parser


def run(arguments: Any) -> int:
    """Reads, looks, prints."""
    from elmo_fast.static import most_similar

    _files.set_up(arguments)
    words = arguments.words.split()
    if not words or arguments.topn < 1:
        raise ElmoFastError(f"give --words, and --topn of 1 or more; got {arguments.words!r}, {arguments.topn}")
    found = most_similar(_files.read(arguments), words, arguments.topn)
    for word, neighbours in zip(words, found, strict=True):
        print(word)
        for rank, (other, cosine) in enumerate(neighbours, start=1):
            print(f"{rank:>3}  {cosine:.4f}  {other}")
    as_json = {w: [{"word": o, "cosine": c} for o, c in n] for w, n in zip(words, found, strict=True)}
    _files.write_json(arguments.results, as_json)
    return 0
