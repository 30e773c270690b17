"""`elmo-fast plot layers`: the weights that scalar mixes have learned for the layers."""

import os
from typing import Any

from elmo_fast.cli import _common


def build_parser() -> Any:
    parser = _common.new_parser(
        "plot layers",
        "Draws how much the scalar mixes use each layer, from a model with mixes (Elmo.save_pretrained) or a trained "
        "task (its folder or results.json).",
        shared=(),
    )
    parser.add_argument("source", type=str, nargs="+", help="folder of a model or task, or its results.json")
    parser.shared("prefix")
    parser.output("output", "picture to write: .png, .pdf or .svg", "layers.png")
    parser.shared("title")
    return parser


def run(arguments: Any) -> int:
    """Reads the weights of every source, then draws; with several sources, their names prefix the mixes'."""
    from elmo_fast.pictures import layer_weights, read_layer_weights

    _common.set_up_logging(arguments)
    groups: dict[str, list[float]] = {}
    for source in arguments.source:
        before = f"{os.path.normpath(source)}: " if len(arguments.source) > 1 else ""
        groups |= {before + name: weights for name, weights in read_layer_weights(source, arguments.prefix).items()}
    layer_weights(groups, arguments.output, arguments.title)
    for name, weights in groups.items():
        _common.logger().info("%s  %s", name, "  ".join(f"{weight:.3f}" for weight in weights))
    print(arguments.output)
    return 0
