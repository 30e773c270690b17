"""`elmo-fast task` and `elmo-fast report`: taggers and classifiers over ELMo, and whether ELMo helps them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from elmo_fast.cli._common import Progress, logger, named, set_up, values_of
from elmo_fast.cli._parser import COMPUTING, Parser
from elmo_fast.fields import docstrings
from elmo_fast.files import write_json
from elmo_fast.op_choices import Tokenizer


def train_options(parser: Parser) -> None:
    from elmo_fast.tasks.config import TaskConfig

    parser.shared("device", "threads")
    parser.fields(TaskConfig)
    parser.reads("model", "vectors")


def run_train(arguments: Any) -> None:
    """Train a tagger or classifier and keep the epoch that scores best on --dev_path.

    To resume a run that was killed, run the same command again.
    """
    from elmo_fast.tasks import TaskConfig, train_task

    device = set_up(arguments)
    config = TaskConfig(**values_of(arguments, TaskConfig))
    with Progress(arguments, unit="sentences", leave=False) as bar:
        result = train_task(config, report=bar.say, device=device, progress=bar.reach)
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            print(f"{split}\n{scores.table()}")
    logger().info(f"next   elmo-fast task eval {config.save_dir} FILE")
    logger().info(f"       elmo-fast task predict {config.save_dir} IN OUT")


def add_reading(parser: Parser, sentences: str) -> None:
    """Add the trained task, the sentences that it reads, and how; `task eval` and `task predict` have them."""
    parser.shared(*COMPUTING)
    parser.add_argument("save_dir", type=str, help="folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help=sentences)
    parser.reads("save_dir")
    parser.reads("path", standard_input="copied")
    parser.option(
        "format",
        str,
        "format of the file: conllu, columns, tsv, csv, jsonl, parquet, text (one sentence per line) or auto; null: as "
        "in training",
    )
    parser.option("batch_size", int, "sentences per batch; null: as in training")
    parser.input("model", "biLM that the task was trained with, if it has moved since: a folder, an archive or a name")
    moved = "path of the static vectors that the task was trained with, if they have moved since"
    parser.input("vectors", moved, standard_input="copied")


@contextlib.contextmanager
def reading(arguments: Any) -> Iterator[tuple[Progress, dict[str, Any]]]:
    """Yield a progress bar, and what `add_reading` adds as arguments of the functions of `tasks`."""
    from elmo_fast.tasks.run import precision_of

    device = set_up(arguments, trained=True, precision=precision_of(arguments.save_dir))
    with Progress(arguments, unit="sentences", leave=False) as bar:
        options = named(arguments, "save_dir", "path", "format", "batch_size", "model", "vectors")
        yield bar, options | {"device": device, "progress": bar.reach}


def eval_options(parser: Parser) -> None:
    from elmo_fast.tasks.config import Metric, TaskConfig

    add_reading(parser, "labelled sentences")
    parser.option("column", int | str, "column, as in `task train`; null: as in training")
    parser.option("label_column", str, "of a table: column of the labels; null: as in training")
    parser.option("metric", Metric, f"{docstrings(TaskConfig)['metric']} (default: as in training)")
    parser.output("output", "JSON file to write the scores to")


def run_eval(arguments: Any) -> None:
    """Score a trained model on labelled sentences, class by class."""
    from elmo_fast.tasks import evaluate_task

    with reading(arguments) as (_, options):
        scores = evaluate_task(**options, **named(arguments, "column", "label_column", "metric"))
    if arguments.output is not None:
        write_json(arguments.output, scores.as_dict(), indent=2)
    print(scores.table())


def predict_options(parser: Parser) -> None:
    add_reading(parser, "sentences; labels in them are ignored; - is the standard input")
    parser.add_argument("output", type=str, help="file to write; - is the standard output")
    parser.option("column", str, "of a table: column of the sentences; null: as in training")
    parser.option("tokenizer", Tokenizer, "tokenizer of sentences in text, tsv and tables; null: as in training")
    parser.option("probabilities", None, "write JSON lines with the labels' probabilities, as to a name in .jsonl")
    parser.writes("output", standard_output="copied")


def run_predict(arguments: Any) -> None:
    """Label sentences with a trained model.

    A tagger writes CoNLL columns, word<TAB>tag and a blank line after each sentence, or of a CoNLL-U file the same file
    with its tags. A classifier writes label<TAB>sentence or, to a name in .csv, the rows of the table that it reads
    with a column "predicted". --probabilities writes JSON lines: words, labels, and how likely they are. Result i is
    that of line or row i: a blank one has an empty result (a blank line, a tab alone, an empty field of CSV; in JSON
    null or []).
    """
    from elmo_fast.tasks import predict_task

    with reading(arguments) as (_, options):
        options |= named(arguments, "column", "tokenizer", "probabilities")
        count = predict_task(out=arguments.output, **options)
    logger().info(f"labelled {count:,} {'sentence' if count == 1 else 'sentences'} in {arguments.output}")


def report_options(parser: Parser) -> None:
    """Make every field of ReportSettings an option; --seeds is how many: 0, 1, ..."""
    from elmo_fast.report.plan import EXPERIMENTS, HELP, ReportSettings

    compared = "; ".join(f"{name}: {what}" for name, what in EXPERIMENTS.items())
    parser.description = f"{parser.description} The experiments compare: {compared}."
    parser.shared("device", "threads")
    parser.fields(ReportSettings, help=HELP)
    parser.reads("model", "vectors")


def run_report(arguments: Any) -> None:
    """Measure whether ELMo helps on your data: the paper's tables and figures on a small scale.

    Trains small taggers or classifiers with and without it, with several seeds, and writes report.md with pictures. To
    resume a stopped report, run the same command again.
    """
    from elmo_fast.report.plan import ReportSettings
    from elmo_fast.report.run import write_report

    settings = ReportSettings(**values_of(arguments, ReportSettings))
    device = set_up(arguments)
    print(write_report(settings, report=logger().info, device=device))
