"""`elmo-fast task` and `elmo-fast report`: taggers and classifiers over ELMo, and whether ELMo helps them."""

import contextlib
import shlex
from collections.abc import Iterator
from typing import Any, Literal

from elmo_fast._io.atomic_file import write_json
from elmo_fast.cli._common import Progress, arguments, logger, printed_text, set_up
from elmo_fast.cli._parser import Computing, Parser, Running, flag, option
from elmo_fast.op_choices import Tokenizer


class _TrainOptions(Running):
    """Options of `task train` besides the fields of TaskConfig."""

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Add every field of TaskConfig too."""
        from elmo_fast.tasks.config import TaskConfig

        super().add_to(parser)
        parser.fields(TaskConfig)


def run_train(options: _TrainOptions) -> None:
    """Train a tagger or classifier and keep the epoch that scores best on --dev_path.

    To resume a run that was killed, run the same command again.
    """
    from elmo_fast.tasks import TaskConfig, train_task

    config = TaskConfig(**options.settings)
    device = set_up(options, precision=config.precision)
    with Progress(options, unit="sentences", leave=False) as bar:
        result = train_task(config, report=bar.say, device=device, progress=bar.reach)
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            print(f"{split}\n{scores.table()}")
    folder = shlex.quote(config.save_dir)
    logger().info(f"next   elmo-fast task eval {folder} FILE")
    logger().info(f"       elmo-fast task predict {folder} IN OUT")


class _TaskOptions(Computing):
    """The trained task, the sentences that it reads, and how; `task eval` and `task predict` have them."""

    save_dir: str = option(positional=True)
    """folder that `elmo-fast task train` wrote"""
    path: str = option(positional=True)
    format: str | None = None
    """format of the file: conllu, columns, tsv, csv, jsonl, parquet, text (one sentence per line) or auto; null: as in
    training"""
    pair_column: str | None = None
    """of a table of pairs: column of the second texts; null: as in training"""
    batch_size: int | None = None
    """sentences per batch; null: as in training"""
    model: str | None = None
    """biLM that the task was trained with, if it has moved since: a folder, an archive or a name"""
    vectors: str | None = None
    """path of the static vectors that the task was trained with, if they have moved since"""


@contextlib.contextmanager
def reading(options: _TaskOptions) -> Iterator[dict[str, Any]]:
    """Show progress; yield those options as keywords of the functions of `tasks`."""
    from elmo_fast.tasks.run import precision_of

    device = set_up(options, trained=True, precision=precision_of(options.save_dir))
    with Progress(options, unit="sentences", leave=False) as bar:
        names = ("save_dir", "path", "format", "pair_column", "batch_size", "model", "vectors")
        yield {**arguments(options, *names), "device": device, "progress": bar.reach}


class _EvalOptions(_TaskOptions):
    path: str = option(positional=True)
    """labelled sentences"""
    column: int | str | None = None
    """column, as in `task train`; null: as in training"""
    label_column: str | None = None
    """of a table: column of the labels; null: as in training"""
    metric: Literal["auto", "spans", "labels"] | None = None
    """score of a tagger: spans (F1 of spans by BIO, IOBES or BMES tags; other tags count as O) or labels (accuracy);
    auto: spans if the training data has more tags like B-X and I-X than other tags except O (default: as in training)
    """
    output: str | None = option(None, writes="file")
    """JSON file to write the scores to"""


def run_eval(options: _EvalOptions) -> None:
    """Score a trained model on labelled sentences, class by class."""
    from elmo_fast.tasks import evaluate_task

    with reading(options) as keywords:
        scores = evaluate_task(**keywords, **arguments(options, "column", "label_column", "metric"))
    if options.output is not None:
        write_json(options.output, scores.as_dict(), indent=2)
    print(scores.table())


class _PredictOptions(_TaskOptions):
    path: str = option(positional=True)
    """sentences; labels in them are ignored; - is the standard input"""
    output: str = option(positional=True, writes="stream")
    """file to write; - is the standard output"""
    column: str | None = None
    """of a table: column of the sentences; null: as in training"""
    tokenizer: Tokenizer | None = None
    """tokenizer of sentences in text, tsv and tables; null: as in training"""
    probabilities: bool = flag()
    """write JSON lines with the labels' probabilities, as to a name in .jsonl"""


def run_predict(options: _PredictOptions) -> None:
    """Label sentences with a trained model.

    A tagger writes CoNLL columns, word<TAB>tag and a blank line after each sentence, or of a CoNLL-U file the same file
    with its tags. A classifier writes label<TAB>sentence or, to a name in .csv, the rows of the table that it reads
    with a column "predicted", as always of pairs. --probabilities writes JSON lines: words, labels, and how likely they
    are. Result i is that of line or row i: a blank one has an empty result (a blank line, a tab alone, an empty field
    of CSV; in JSON null or []).
    """
    from elmo_fast.tasks import predict_task

    with reading(options) as keywords, printed_text(options.output) as out:
        keywords |= arguments(options, "column", "tokenizer", "probabilities")
        count = predict_task(out=out, **keywords)
    where = "the standard output" if options.output == "-" else options.output
    logger().info(f"labelled {count:,} {'sentence' if count == 1 else 'sentences'} in {where}")


class _ReportOptions(Running):
    """Options of `report` besides the fields of ReportSettings; --seeds is how many: 0, 1, ..."""

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Add every field of ReportSettings too."""
        from elmo_fast.report.plan import EXPERIMENTS, HELP, ReportSettings

        compared = "; ".join(f"{name}: {what}" for name, what in EXPERIMENTS.items())
        parser.description = f"{parser.description} The experiments compare: {compared}."
        super().add_to(parser)
        parser.fields(ReportSettings, help=HELP)


def run_report(options: _ReportOptions) -> None:
    """Measure whether ELMo helps on your data: the paper's tables and figures on a small scale.

    Trains small taggers or classifiers with and without it, with several seeds, and writes report.md with pictures.
    --task senses trains nothing. To resume a stopped report, run the same command again.
    """
    from elmo_fast.report.plan import ReportSettings
    from elmo_fast.report.run import write_report

    settings = ReportSettings(**options.settings)
    device = set_up(options)
    print(write_report(settings, report=logger().info, device=device))
