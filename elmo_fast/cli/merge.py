"""`elmo-fast merge`: the folder of parts that several processes wrote, as the file that one process writes."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.token_files import Format


def build_parser() -> Any:
    parser = _common.new_parser(
        "merge",
        "Joins the folder PARTS, which several processes of `elmo-fast embed` wrote, into the file that one process "
        "would have written. Checks the digest of every part first. The file appears only when it is complete; the "
        "folder stays.",
        shared=(),
    )
    parser.add_argument("parts", type=str, metavar="PARTS", help="folder of parts; all of them must be complete")
    parser.add_argument("output_file", type=str, metavar="OUTPUT", help="file to write")
    parser.writes("output_file")
    parser.option(
        "format",
        Format,
        "format of the file, as in `elmo-fast embed` (default: by the ending of OUTPUT; without one: as given there)",
    )
    parser.shared("file_friendly_logging")
    return parser


def run(arguments: Any) -> int:
    _common.set_up_logging(arguments)
    from elmo_fast.parts import merge_parts

    with _common.Progress(arguments, unit="sentences") as progress:
        count = merge_parts(arguments.parts, arguments.output_file, arguments.format, progress.reach)
    _common.logger().info("%s: %d sentences", arguments.output_file, count)
    return 0
