"""`elmo-fast download`: a model from the Hugging Face hub."""

from typing import Any

from elmo_fast.cli import _common


def build_parser() -> Any:
    parser = _common.new_parser(
        "download",
        "Downloads a model (weights, options, vocab.txt, README.md) from the Hugging Face hub, checks that it is "
        "complete, and prints its folder, which every command accepts as --model.",
        shared=(),
    )
    parser.add_argument("repo", type=str, help="user/name on the hub, or user/name@revision")
    parser.shared("prefix")
    parser.option("out_dir", str, "folder to write (default: the hub's cache)")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.checkpoints import fetch, load_checkpoint

    _common.set_up_logging(arguments)
    folder = fetch(arguments.repo, arguments.out_dir)
    load_checkpoint(folder, prefix=arguments.prefix)
    print(folder)
    return 0
