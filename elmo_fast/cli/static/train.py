"""`elmo-fast static train`: word vectors of a text."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from elmo_fast.cli import _common, _progress
from elmo_fast.cli._outputs import write_json
from elmo_fast.cli.static import _files
from elmo_fast.errors import ElmoFastError


class Method(NamedTuple):
    """The defaults of an algorithm, and the options that only it has."""

    defaults: dict[str, Any]
    own: tuple[str, ...]


WORD2VEC = Method({"epochs": 5, "window": 5, "learning_rate": 0.025}, ("objective", "negative", "sample", "workers"))
GLOVE = Method({"epochs": 25, "window": 10, "learning_rate": 0.05}, ("x_max",))


def build_parser() -> Any:
    """The options of `elmo-fast static train`."""
    parser = _common.new_parser(
        "static train",
        "Trains word vectors on text of one sentence per line, words separated by spaces. sg and cbow are word2vec, "
        "trained by gensim (pip install 'elmo-fast[static]'); glove is trained by elmo_fast. After every pass a line "
        "gives its time and speed, and GloVe's loss (gensim's is known to be wrong and is not shown).",
    )
    parser.add_argument("--train_prefix", type=str, required=True, help="file, folder or glob of text, plain or .gz")
    parser.add_argument("--algo", type=Literal["sg", "cbow", "glove"], default="sg", help="skip-gram, CBOW or GloVe")
    parser.add_argument("--dimension", type=int, default=100, help="numbers per vector")
    parser.add_argument("--min_count", type=int, default=5, help="leave out words that occur less often")
    parser.add_argument("--epochs", type=int | None, default=None, help="passes (sg, cbow: 5; glove: 25)")
    parser.add_argument("--window", type=int | None, default=None, help="words on each side (sg, cbow: 5; glove: 10)")
    parser.add_argument(
        "--learning_rate", type=float | None, default=None, help="at the start (sg, cbow: 0.025; glove: 0.05)"
    )
    parser.add_argument(
        "--objective",
        type=Literal["ns", "hs"],
        default="ns",
        help="sg, cbow: negative sampling or a hierarchical softmax",
    )
    parser.add_argument("--negative", type=int, default=5, help="sg, cbow with ns: random words per true one")
    parser.add_argument(
        "--sample", type=float, default=1e-3, help="sg, cbow: downsample words with a larger share than this"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="sg, cbow: threads; with more than 1, results are not reproducible"
    )
    parser.add_argument(
        "--x_max",
        type=float,
        default=100.0,
        help="glove: pairs this frequent have weight 1; use 10 for a few million words",
    )
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    _files.add_output(parser)
    parser.add_argument("--results", type=str | None, default=None, help="JSON file for settings and every pass")
    parser.writes("results")
    return parser


def run(arguments: Any) -> int:
    """Trains, writes the vectors."""
    _files.check_output(arguments)
    _files.set_up(arguments)
    method, train = (GLOVE, _glove) if arguments.algo == "glove" else (WORD2VEC, _word2vec)
    usual = build_parser().get_defaults()
    for name in (*WORD2VEC.own, *GLOVE.own):
        if name not in method.own and getattr(arguments, name) != getattr(usual, name):
            raise ElmoFastError(f"--{name} does nothing with --algo {arguments.algo}; leave it out")
    given = {name: getattr(arguments, name) for name in method.defaults if getattr(arguments, name) is not None}
    shared = {name: getattr(arguments, name) for name in ("dimension", "min_count", "seed", *method.own)}
    settings = {**method.defaults, **given, **shared}
    passes: list[dict[str, Any]] = []

    def report(epoch: Any) -> None:
        passes.append(epoch._asdict())
        rate = f"{epoch[-1]:,.0f} {epoch._fields[-1].removesuffix('_per_second')}/s"
        loss = f", loss {epoch.loss:.6f}" if hasattr(epoch, "loss") else ""
        _common.logger().info("pass %d of %d: %.1f s, %s%s", epoch.number, epoch.epochs, epoch.seconds, rate, loss)

    vectors = train(arguments, settings, report)
    _files.write(arguments, vectors)
    about = {"algo": arguments.algo, "train_prefix": arguments.train_prefix, "output": arguments.output}
    write_json(arguments.results, {**about, "words": len(vectors), "settings": settings, "passes": passes})
    return 0


def _word2vec(arguments: Any, settings: dict[str, Any], report: Callable[[Any], None]) -> Any:
    from elmo_fast.static import train_word2vec

    return train_word2vec(arguments.train_prefix, algorithm=arguments.algo, **settings, report=report)


def _glove(arguments: Any, settings: dict[str, Any], report: Callable[[Any], None]) -> Any:
    from elmo_fast.static import train_glove

    bars: dict[str, _progress.ProgressBar] = {}

    def progress(what: str, done: int, total: int) -> None:
        unit = "words" if what == "counting" else "entries"
        if what not in bars:
            bars[what] = _progress.ProgressBar(
                total, lines=arguments.file_friendly_logging, quiet=arguments.quiet, unit=unit
            )
        bars[what].reach(done, total)
        if done == total:
            bars[what].__exit__()

    return train_glove(arguments.train_prefix, **settings, report=report, progress=progress)
