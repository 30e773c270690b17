"""`elmo-fast static neighbours`: the words nearest to words, or to sums and differences of words."""

from collections.abc import Sequence
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli.static import _files
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.files import write_json


def build_parser() -> Any:
    parser = _common.new_parser(
        "static neighbours",
        "Lists the words whose vectors have the largest cosine with a word's, one table per word, or with a sum and "
        "difference of words. For tokens in their sentences use `elmo-fast neighbours`.",
    )
    _files.add_reading(parser)
    parser.option("words", str, "words to look up; put the file before this option", [], nargs="+")
    parser.option(
        "analogy", str, "words with + or - between them, separated by spaces: king - man + woman", [], nargs="+"
    )
    parser.shared("topn")
    parser.output("results", "JSON file to write them to")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.static import most_similar, nearest_words

    _files.set_up(arguments)
    signed = " ".join(arguments.analogy).split()
    positive, negative = parted(signed)
    if not signed and not "".join(arguments.words).strip():
        raise ElmoFastError("give --words, as --words king night, or --analogy, as --analogy king - man + woman")
    check_counts(**{"--topn": arguments.topn})
    vectors = _files.read(arguments)
    # A vectors file can contain words with spaces; several words in one argument are split.
    words = [word for each in arguments.words for word in ([each] if each in vectors else each.split())]
    found = dict(zip(words, nearest_words(vectors, words, arguments.topn), strict=True))
    if signed:
        found[" ".join(signed)] = most_similar(vectors, positive, negative, arguments.topn)
    for asked, neighbours in found.items():
        print(asked)
        for rank, (other, cosine) in enumerate(neighbours, start=1):
            print(f"{rank:>3}  {cosine:.4f}  {other}")
    if arguments.results is not None:
        as_json = {asked: [{"word": o, "cosine": c} for o, c in near] for asked, near in found.items()}
        write_json(arguments.results, as_json, indent=2)
    return 0


def parted(signed: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words with a plus and those with a minus, of a word, a sign, a word ...; the first has a plus."""
    signs, words = ["+", *signed[1::2]], signed[::2]
    if signed and (len(signed) % 2 == 0 or not {"+", "-"}.issuperset(signs)):
        raise ElmoFastError(
            f"--analogy needs words with + or - between them, separated by spaces, such as king - man + woman; got "
            f"{' '.join(signed)!r}"
        )
    plus, minus = ([word for sign, word in zip(signs, words, strict=False) if sign == kind] for kind in "+-")
    return plus, minus
