"""`elmo-fast static convert`: a file of word vectors in another format."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli.static import _files


def build_parser() -> Any:
    parser = _common.new_parser(
        "static convert",
        "Converts word vectors to another format without loss: text has the fewest digits that give the same float32. "
        ".safetensors is the fastest to read.",
    )
    _files.add_reading(parser)
    _files.add_output(parser)
    return parser


def run(arguments: Any) -> int:
    _files.set_up(arguments)
    _files.check_output(arguments)
    _files.write(arguments, _files.read(arguments))
    return 0
