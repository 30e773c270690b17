"""`elmo-fast task train | eval | predict`: taggers and classifiers over ELMo or over static vectors."""

import dataclasses
import json
import sys
from typing import Any

from elmo_fast.cli._common import logger, new_parser, set_up
from elmo_fast.tasks.config import TaskConfig


def build_parser() -> Any:
    """The options of `elmo-fast task` and of its three commands."""
    from elmo_fast.cli._parser import Parser

    parser = Parser(
        prog="elmo-fast task",
        description="Trains, scores and uses a tagger (a label per word) or a classifier (a label per sentence).",
    )
    commands = parser.add_subcommands(dest="command", required=True)
    commands.add_subcommand("train", _train_parser(), help="train on labelled sentences, stop when dev gets no better")
    commands.add_subcommand("eval", _eval_parser(), help="score a trained model on labelled sentences")
    commands.add_subcommand("predict", _predict_parser(), help="label sentences with a trained model")
    return parser


def _train_parser() -> Any:
    parser = new_parser(
        "task train",
        "Trains a tagger or classifier and keeps the epoch that scores best on dev_path. The same command again goes "
        "on with a run that was killed. Every option may stand in a YAML file: --config FILE.",
    )
    for field in dataclasses.fields(TaskConfig):
        if field.name not in ("seed", "threads"):
            parser.add_argument(f"--{field.name}", type=field.type, default=field.default, help=field.metadata["help"])
    return parser


def _eval_parser() -> Any:
    parser = new_parser("task eval", "Scores a trained model on labelled sentences, class by class.")
    parser.add_argument("save_dir", type=str, help="the folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="file of labelled sentences")
    parser.add_argument("--output", type=str | None, default=None, help="JSON file of the scores to write")
    _add_reading(parser)
    return parser


def _predict_parser() -> Any:
    parser = new_parser(
        "task predict",
        "Labels sentences: a tagger writes CoNLL columns, word<TAB>tag and a blank line after each sentence; a "
        "classifier writes label<TAB>sentence.",
    )
    parser.add_argument("save_dir", type=str, help="the folder that `elmo-fast task train` wrote")
    parser.add_argument("path", type=str, help="file of sentences; any labels in it are not looked at")
    parser.add_argument("output", type=str, help="file to write")
    _add_reading(parser)
    return parser


def _add_reading(parser: Any) -> None:
    parser.add_argument(
        "--format",
        type=str | None,
        default=None,
        help="of the file: conllu, columns, tsv, text (a sentence a line) or auto; null: as for training",
    )
    parser.add_argument("--batch_size", type=int | None, default=None, help="sentences per batch; null: as trained")


def run(arguments: Any) -> int:
    """Runs the command that was named."""
    chosen = arguments[arguments.command]
    device = set_up(chosen)
    return {"train": _train, "eval": _evaluate, "predict": _predict}[arguments.command](chosen, device)


def _train(arguments: Any, device: Any) -> int:
    from elmo_fast.tasks.run import train_task

    names = {field.name for field in dataclasses.fields(TaskConfig)}
    config = TaskConfig.from_flat({name: value for name, value in vars(arguments).items() if name in names})
    with _Bar(arguments.quiet) as bar:
        result = train_task(config, report=bar.say, device=device, progress=bar)
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            print(f"{split}\n{scores.table()}")
    logger().info(f"next   elmo-fast task eval {config.save_dir} FILE")
    logger().info(f"       elmo-fast task predict {config.save_dir} IN OUT")
    return 0


def _evaluate(arguments: Any, device: Any) -> int:
    from elmo_fast.files import replacing
    from elmo_fast.tasks.run import evaluate_task

    with _Bar(arguments.quiet) as bar:
        scores = evaluate_task(
            arguments.save_dir, arguments.path, format=arguments.format, batch_size=arguments.batch_size,
            report=bar.say, device=device, progress=bar,
        )  # fmt: skip
    if arguments.output is not None:
        with replacing(arguments.output) as temporary:
            temporary.write_text(json.dumps(scores.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(scores.table())
    return 0


def _predict(arguments: Any, device: Any) -> int:
    from elmo_fast.tasks.run import predict_task

    with _Bar(arguments.quiet) as bar:
        count = predict_task(
            arguments.save_dir, arguments.path, arguments.output, format=arguments.format,
            batch_size=arguments.batch_size, device=device, progress=bar,
        )  # fmt: skip
    logger().info(f"{count} sentences labelled in {arguments.output}")
    return 0


class _Bar:
    """A bar of sentences on a terminal, nothing elsewhere; lines go above it."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def __call__(self, done: int, total: int) -> None:
        """So many sentences are done."""
        if not self._shown:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="", unit_scale=True, dynamic_ncols=True, leave=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._close()

    def say(self, line: str) -> None:
        """A line for people."""
        self._close()
        logger().info(line)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
