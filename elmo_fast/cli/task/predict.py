"""`elmo-fast task predict`: labels sentences."""

from typing import Any

from elmo_fast.cli._common import leave_busy_processors, logger, new_parser, set_up
from elmo_fast.cli._progress import progress_bar
from elmo_fast.cli.task.eval import add_reading_options


def build_parser() -> Any:
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


def run(arguments: Any) -> int:
    from elmo_fast.tasks import predict_task

    device = set_up(arguments)
    leave_busy_processors(arguments)
    with progress_bar(arguments, unit="", stays=False) as bar:
        count = predict_task(
            arguments.save_dir, arguments.path, arguments.output, format=arguments.format,
            batch_size=arguments.batch_size, device=device, progress=bar.reach, model=arguments.model,
            vectors=arguments.vectors,
        )  # fmt: skip
    logger().info(f"{count} sentences labelled in {arguments.output}")
    return 0
