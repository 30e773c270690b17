"""`elmo-fast plot curves`: the curves of a pretraining run as a picture."""

import os
from typing import Any

from elmo_fast.cli import _common


def build_parser() -> Any:
    parser = _common.new_parser(
        "plot curves",
        "Draws the perplexity of training and held-out text, the speed and the gradient norm of a pretraining run, "
        "finished or not, from its metrics.jsonl.",
        shared=(),
    )
    parser.add_argument("run", type=str, help="folder of the run (--save_dir of `elmo-fast pretrain`)")
    parser.output("output", "picture to write: .png, .pdf or .svg (default: RUN/curves.png)")
    parser.option("also", str, "folders of other runs to draw in the same picture", [], nargs="+", metavar="RUN")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.pictures import draw_curves
    from elmo_fast.pretrain.metrics import read_metrics

    _common.set_up_logging(arguments)
    folders = [os.path.normpath(folder) for folder in (arguments.run, *arguments.also)]
    output = arguments.output or os.path.join(folders[0], "curves.png")
    draw_curves({folder: read_metrics(folder) for folder in folders}, output)
    print(output)
    return 0
