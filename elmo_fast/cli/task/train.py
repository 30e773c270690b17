"""`elmo-fast task train`: trains a tagger or classifier."""

from typing import Any

from elmo_fast.cli._common import logger, new_parser, set_up, values_of
from elmo_fast.cli._progress import progress_bar
from elmo_fast.tasks.config import TaskConfig


def build_parser() -> Any:
    parser = new_parser(
        "task train",
        "Trains a tagger or classifier and keeps the epoch that scores best on --dev_path. To resume a run that was "
        "killed, run the same command again.",
    )
    parser.fields(TaskConfig)
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.tasks import train_task

    device = set_up(arguments)
    config = TaskConfig(**values_of(arguments, TaskConfig))
    with progress_bar(arguments, unit="", stays=False) as bar:
        result = train_task(config, report=bar.say, device=device, progress=bar.reach)
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            print(f"{split}\n{scores.table()}")
    logger().info(f"next   elmo-fast task eval {config.save_dir} FILE")
    logger().info(f"       elmo-fast task predict {config.save_dir} IN OUT")
    return 0
