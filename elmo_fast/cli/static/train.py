"""`elmo-fast static train`: word vectors of a text."""

from typing import Any, Literal

from elmo_fast.cli import _common
from elmo_fast.cli.static import _files


def build_parser() -> Any:
    """The options of `elmo-fast static train`."""
    parser = _common.new_parser(
        "static train",
        "Trains word vectors on text of one sentence per line, words parted by blanks. sg and cbow are word2vec, "
        "trained by gensim (pip install 'elmo-fast[static]'). After every pass a line tells its time and "
        "words per second (no loss: gensim's is known to be wrong).",
    )
    parser.add_argument("--train_prefix", type=str, required=True, help="file, folder or glob of text, .gz or not")
    parser.add_argument("--algo", type=Literal["sg", "cbow"], default="sg", help="skip-gram or CBOW")
    parser.add_argument(
        "--objective",
        type=Literal["ns", "hs"],
        default="ns",
        help="how words are told apart: negative sampling, hierarchical softmax",
    )
    parser.add_argument("--dimension", type=int, default=100, help="numbers a vector")
    parser.add_argument("--window", type=int, default=5, help="words on each side")
    parser.add_argument("--min_count", type=int, default=5, help="words that are rarer are left out")
    parser.add_argument("--epochs", type=int | None, default=None, help="passes (default: 5)")
    parser.add_argument("--negative", type=int, default=5, help="with ns: random words for each true one")
    parser.add_argument("--sample", type=float, default=1e-3, help="words with a greater share are thinned out")
    parser.add_argument("--learning_rate", type=float | None, default=None, help="at the start (default: 0.025)")
    parser.add_argument("--workers", type=int, default=1, help="threads; more than 1 are not reproducible")
    _files.add_output(parser)
    parser.add_argument("--results", type=str | None, default=None, help="JSON file for settings and every pass")
    return parser


def run(arguments: Any) -> int:
    """Trains, writes the vectors."""
    _files.check_output(arguments)
    _common.set_up(arguments)
    passes: list[dict[str, Any]] = []
    settings: dict[str, Any] = {
        "dimension": arguments.dimension,
        "window": arguments.window,
        "min_count": arguments.min_count,
        "seed": arguments.seed,
    }
    for name in ("epochs", "learning_rate"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    vectors = _word2vec(arguments, settings, passes)
    _files.write(arguments, vectors)
    _files.write_json(
        arguments.results,
        {"algo": arguments.algo, "train_prefix": arguments.train_prefix, "output": arguments.output}
        | {"words": len(vectors), "settings": settings, "passes": passes},
    )
    return 0


def _word2vec(arguments: Any, settings: dict[str, Any], passes: list[dict[str, Any]]) -> Any:
    """Vectors by gensim; fills in the settings and what is said of each pass."""
    from elmo_fast.static import train_word2vec

    def report(epoch: Any) -> None:
        passes.append(epoch._asdict())
        said = "pass %d of %d: %.1f s, %d words/s"
        _common.logger().info(said, epoch.number, epoch.epochs, epoch.seconds, epoch.words_per_second)

    settings |= {
        "algorithm": arguments.algo,
        "objective": arguments.objective,
        "negative": arguments.negative,
        "sample": arguments.sample,
        "workers": arguments.workers,
    }
    return train_word2vec(arguments.train_prefix, **settings, report=report)
