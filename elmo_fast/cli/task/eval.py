"""`elmo-fast task eval`: scores a trained model."""

from typing import Any

from elmo_fast.cli._common import leave_busy_processors, new_parser, set_up
from elmo_fast.cli._outputs import write_json
from elmo_fast.cli._progress import ProgressBar
from elmo_fast.cli.task import _reading


def build_parser() -> Any:
    """The options of `elmo-fast task eval`."""
    parser = new_parser("task eval", "Scores a trained model on labelled sentences, class by class.")
    parser.add_argument("save_dir", type=str, help="the folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="file of labelled sentences")
    parser.add_argument("--output", type=str | None, default=None, help="JSON file to write the scores to")
    parser.writes("output")
    _reading.add_options(parser)
    return parser


def run(arguments: Any) -> int:
    """Prints the scores, and writes them where --output says."""
    from elmo_fast.tasks.run import evaluate_task

    device = set_up(arguments)
    leave_busy_processors(arguments)
    with ProgressBar(quiet=arguments.quiet, unit="", stays=False) as bar:
        scores = evaluate_task(
            arguments.save_dir, arguments.path, format=arguments.format, batch_size=arguments.batch_size,
            report=bar.say, device=device, progress=bar.reach,
        )  # fmt: skip
    write_json(arguments.output, scores.as_dict())
    print(scores.table())
    return 0
