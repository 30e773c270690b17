"""`elmo-fast neighbours`: the tokens of a corpus whose vectors, in context, are nearest to one token's."""

from collections.abc import Sequence
from typing import Any

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.text import rereadable

CONTEXT = 6


def build_parser() -> Any:
    """The options of `elmo-fast neighbours`."""
    parser = _common.new_parser(
        "neighbours",
        "Lists the tokens of a corpus nearest to one token of a sentence, by the cosine of their vectors in context.",
    )
    _model.add_options(parser)
    parser.add_argument("--corpus", type=str, required=True, help="text, one sentence per line")
    parser.add_argument("--query", type=str, required=True, help="a sentence, tokens separated by spaces")
    parser.add_argument("--index", type=int, required=True, help="which token of the query, from 0")
    parser.add_argument("--topn", type=int, default=10, help="how many to list")
    parser.add_argument(
        "--layer", type=str, default="top", help='"top", "average", "all" (a list for each), or a number from 0'
    )
    parser.add_argument("--batch_size", type=int, default=64, help="maximum number of sentences per batch")
    parser.add_argument(
        "--max_tokens", type=int | None, default=None, help="maximum number of tokens per batch, including padding"
    )
    parser.add_argument(
        "--cache",
        type=str | None,
        default=None,
        help="file for the corpus's vectors: written by the first query, read by the next, which take a second; "
        "4 bytes x tokens x width (1024 for the published model) per layer",
    )
    parser.writes("cache")
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    return parser


def run(arguments: Any) -> int:
    """Finds the nearest tokens and prints one list per layer."""
    from elmo_fast.tokens.nearest import check_query, nearest_tokens

    _model.resolve(arguments)
    query, index = arguments.query.split(), arguments.index
    check_query(query, index, arguments.topn)
    with rereadable(arguments.corpus) as corpus:
        device = _common.set_up(arguments)
        bilm = _model.load_embedder(arguments, device, stateful=False).elmo_bilm
        with _progress.ProgressBar(0, lines=arguments.file_friendly_logging, quiet=arguments.quiet) as progress:
            found = nearest_tokens(
                bilm,
                corpus,
                query,
                index,
                topn=arguments.topn,
                layers=_model.layer_of(arguments.layer),
                cache=arguments.cache,
                batch_size=arguments.batch_size,
                max_tokens=arguments.max_tokens,
                progress=progress.reach,
            )
    for name, near in found.items():
        print(f"{shown(query, index)}   layer {name}")
        for rank, token in enumerate(near, start=1):
            print(f"{rank:>3}  {token.cosine:.4f}  line {token.line + 1}: {shown(token.tokens, token.place)}")
    return 0


def shown(tokens: Sequence[str], place: int) -> str:
    """The token at `place` in brackets, with the words around it."""
    left = " ".join(tokens[max(0, place - CONTEXT) : place])
    right = " ".join(tokens[place + 1 : place + 1 + CONTEXT])
    before = "... " if place > CONTEXT else ""
    after = " ..." if len(tokens) - place - 1 > CONTEXT else ""
    return f"{before}{left}{' ' if left else ''}[{tokens[place]}]{' ' if right else ''}{right}{after}"
