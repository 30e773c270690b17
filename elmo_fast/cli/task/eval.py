"""`elmo-fast task eval`: scores a trained model."""

from typing import Any

from elmo_fast.cli._common import leave_busy_processors, new_parser, set_up
from elmo_fast.cli._progress import progress_bar
from elmo_fast.files import write_json


def build_parser() -> Any:
    parser = new_parser("task eval", "Scores a trained model on labelled sentences, class by class.")
    parser.add_argument("save_dir", type=str, help="folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="labelled sentences")
    parser.output("output", "JSON file to write the scores to")
    add_reading_options(parser)
    return parser


def add_reading_options(parser: Any) -> None:
    """Adds the options that also `task predict` has."""
    parser.option(
        "format",
        str,
        "format of the file: conllu, columns, tsv, text (one sentence per line) or auto; null: as in training",
    )
    parser.option("batch_size", int, "sentences per batch; null: as in training")
    parser.option("model", str, "path of the biLM that the task was trained with, if it has moved since")
    parser.option("vectors", str, "path of the static vectors that the task was trained with, if they have moved since")


def run(arguments: Any) -> int:
    from elmo_fast.tasks import evaluate_task

    device = set_up(arguments)
    leave_busy_processors(arguments)
    with progress_bar(arguments, unit="", stays=False) as bar:
        scores = evaluate_task(
            arguments.save_dir, arguments.path, format=arguments.format, batch_size=arguments.batch_size,
            report=bar.say, device=device, progress=bar.reach, model=arguments.model, vectors=arguments.vectors,
        )  # fmt: skip
    if arguments.output is not None:
        write_json(arguments.output, scores.as_dict(), indent=2)
    print(scores.table())
    return 0
