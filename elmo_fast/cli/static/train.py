"""`elmo-fast static train`: word vectors of a text."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from elmo_fast.cli import _common, _progress
from elmo_fast.cli.static import _files
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_json


class Method(NamedTuple):
    """The defaults of an algorithm, and the options that only it has."""

    defaults: dict[str, Any]
    own: tuple[str, ...]


WORD2VEC = Method({"epochs": 5, "window": 5, "learning_rate": 0.025}, ("objective", "negative", "sample", "workers"))
GLOVE = Method({"epochs": 25, "window": 10, "learning_rate": 0.05}, ("x_max",))


def build_parser() -> Any:
    parser = _common.new_parser(
        "static train",
        "Trains word vectors on text of one sentence per line, words separated by spaces. gensim trains sg and cbow "
        "(word2vec; needs the extra `static`), elmo_fast trains glove. After every pass a line shows its time and "
        "speed, and GloVe's loss (gensim's is known to be wrong).",
    )
    parser.shared("train_prefix")
    parser.option("algo", Literal["sg", "cbow", "glove"], "skip-gram, CBOW or GloVe", "sg")
    parser.option("dimension", int, "width of the vectors", 100)
    parser.shared("min_count", default=5)
    parser.option("epochs", int, "passes over the text (default: 5; glove: 25)")
    parser.option("window", int, "words of context on each side (default: 5; glove: 10)")
    parser.option("learning_rate", float, "initial learning rate (default: 0.025; glove: 0.05)")
    parser.option(
        "objective", Literal["ns", "hs"], "sg, cbow: ns (negative sampling) or hs (hierarchical softmax)", "ns"
    )
    parser.option("negative", int, "sg, cbow with ns: random words per word", 5)
    parser.option("sample", float, "sg, cbow: downsample words with a larger share of the text than this", 1e-3)
    parser.option("workers", int, "sg, cbow: number of threads; with more than 1, results are not reproducible", 1)
    parser.option("x_max", float, "glove: pairs this frequent have weight 1; use 10 for a few million words", 100.0)
    parser.shared("file_friendly_logging")
    _files.add_output(parser)
    parser.output("results", "JSON file to write the settings and a row per pass to")
    return parser


def run(arguments: Any) -> int:
    _files.check_output(arguments)
    _files.set_up(arguments)
    method, train = (GLOVE, _glove) if arguments.algo == "glove" else (WORD2VEC, _word2vec)
    usual = build_parser().get_defaults()
    for name in (*WORD2VEC.own, *GLOVE.own):
        if name not in method.own and getattr(arguments, name) != getattr(usual, name):
            raise ElmoFastError(f"--{name} does nothing with --algo {arguments.algo}; leave it out")
    given = {name: getattr(arguments, name) for name in method.defaults if getattr(arguments, name) is not None}
    shared = _common.named(arguments, "dimension", "min_count", "seed", *method.own)
    settings = {**method.defaults, **given, **shared}
    passes: list[dict[str, Any]] = []

    def report(epoch: Any) -> None:
        passes.append(epoch._asdict())
        rate = f"{epoch[-1]:,.0f} {epoch._fields[-1].removesuffix('_per_second')}/s"
        loss = f", loss {epoch.loss:.6f}" if hasattr(epoch, "loss") else ""
        _common.logger().info("pass %d of %d: %.1f s, %s%s", epoch.number, epoch.epochs, epoch.seconds, rate, loss)

    vectors = train(arguments, settings, report)
    _files.write(arguments, vectors)
    if arguments.results is not None:
        about = _common.named(arguments, "algo", "train_prefix", "output")
        told = {**about, "words": len(vectors), "settings": settings, "passes": passes}
        write_json(arguments.results, told, indent=2)
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
            bars[what] = _progress.progress_bar(arguments, total, unit=unit)
        bars[what].reach(done, total)
        if done == total:
            bars[what].__exit__()

    return train_glove(arguments.train_prefix, **settings, report=report, progress=progress)
