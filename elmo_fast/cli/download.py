"""`elmo-fast download`: a published model by its name, or one from the Hugging Face hub."""

from typing import Any

from elmo_fast.cli import _common


def build_parser() -> Any:
    parser = _common.new_parser(
        "download",
        "Downloads a published model, or a model (weights, options, vocab.txt, README.md) from the Hugging Face hub, "
        "checks that it is complete, and prints its folder, which every command accepts as --model.",
        shared=(),
    )
    parser.add_argument(
        "name",
        type=str,
        metavar="NAME",
        help="name that `elmo-fast models` lists, such as original; or user/name, user/name@revision on the hub",
    )
    parser.shared("prefix")
    parser.option("out_dir", str, "folder to write (default: torch's cache, which TORCH_HOME moves, or the hub's)")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.checkpoints import PUBLISHED, fetch, load_checkpoint, published_folder

    _common.set_up_logging(arguments)
    download = published_folder if arguments.name in PUBLISHED else fetch
    folder = download(arguments.name, arguments.out_dir)
    load_checkpoint(folder, prefix=arguments.prefix)
    print(folder)
    return 0
