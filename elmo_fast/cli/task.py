"""`elmo-fast task` and `elmo-fast report`: taggers and classifiers over ELMo, and whether ELMo helps them."""

from typing import Any

from elmo_fast.cli._common import Progress, leave_busy_processors, logger, named, new_parser, set_up, values_of
from elmo_fast.files import write_json
from elmo_fast.tasks.config import TaskConfig

READING = ("format", "batch_size", "model", "vectors")  # how `task eval` and `task predict` read


def train_parser() -> Any:
    parser = new_parser(
        "task train",
        "Trains a tagger or classifier and keeps the epoch that scores best on --dev_path. To resume a run that was "
        "killed, run the same command again.",
    )
    parser.fields(TaskConfig)
    return parser


def run_train(arguments: Any) -> int:
    from elmo_fast.tasks import train_task

    device = set_up(arguments)
    config = TaskConfig(**values_of(arguments, TaskConfig))
    with Progress(arguments, unit="batches", leave=False) as bar:
        result = train_task(config, report=bar.say, device=device, progress=bar.reach)
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            print(f"{split}\n{scores.table()}")
    logger().info(f"next   elmo-fast task eval {config.save_dir} FILE")
    logger().info(f"       elmo-fast task predict {config.save_dir} IN OUT")
    return 0


def eval_parser() -> Any:
    parser = new_parser("task eval", "Scores a trained model on labelled sentences, class by class.")
    parser.add_argument("save_dir", type=str, help="folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="labelled sentences")
    parser.output("output", "JSON file to write the scores to")
    add_reading_options(parser)
    return parser


def add_reading_options(parser: Any) -> None:
    """Add the options that also `task predict` has."""
    parser.option(
        "format",
        str,
        "format of the file: conllu, columns, tsv, text (one sentence per line) or auto; null: as in training",
    )
    parser.option("batch_size", int, "sentences per batch; null: as in training")
    parser.option("model", str, "path of the biLM that the task was trained with, if it has moved since")
    parser.option("vectors", str, "path of the static vectors that the task was trained with, if they have moved since")


def run_eval(arguments: Any) -> int:
    from elmo_fast.tasks import evaluate_task

    device = set_up(arguments)
    leave_busy_processors(arguments)
    with Progress(arguments, unit="batches", leave=False) as bar:
        options = named(arguments, *READING) | {"device": device, "progress": bar.reach}
        scores = evaluate_task(arguments.save_dir, arguments.path, report=bar.say, **options)
    if arguments.output is not None:
        write_json(arguments.output, scores.as_dict(), indent=2)
    print(scores.table())
    return 0


def predict_parser() -> Any:
    parser = new_parser(
        "task predict",
        "Labels sentences: a tagger writes CoNLL columns, word<TAB>tag and a blank line after each sentence; a "
        "classifier writes label<TAB>sentence.",
    )
    parser.add_argument("save_dir", type=str, help="folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="sentences; labels in them are ignored")
    parser.add_argument("output", type=str, help="file to write")
    parser.writes("output")
    add_reading_options(parser)
    return parser


def run_predict(arguments: Any) -> int:
    from elmo_fast.tasks import predict_task

    device = set_up(arguments)
    leave_busy_processors(arguments)
    with Progress(arguments, unit="batches", leave=False) as bar:
        options = named(arguments, *READING) | {"device": device, "progress": bar.reach}
        count = predict_task(arguments.save_dir, arguments.path, arguments.output, **options)
    logger().info(f"{count} sentences labelled in {arguments.output}")
    return 0


def report_parser() -> Any:
    """Make every field of ReportSettings a flag; --seeds is how many: 0, 1, ... It runs on the CPU."""
    from elmo_fast.report.plan import EXPERIMENTS, ReportSettings

    parser = new_parser(
        "report",
        "Measures whether ELMo helps on your data: trains small taggers or classifiers with and without it, with "
        "several seeds, and writes the paper's tables and figures on a small scale, report.md with pictures. To resume "
        "a stopped report, run the same command again. The experiments compare: "
        + "; ".join(f"{name}: {what}" for name, what in EXPERIMENTS.items())
        + ".",
        shared=("threads",),
    )
    parser.fields(ReportSettings)
    return parser


def run_report(arguments: Any) -> int:
    from elmo_fast.report.plan import ReportSettings
    from elmo_fast.report.run import write_report

    settings = ReportSettings(**values_of(arguments, ReportSettings))
    set_up(arguments)
    print(write_report(settings, report=logger().info))
    return 0
