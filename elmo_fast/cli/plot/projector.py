"""`elmo-fast plot projector`: vectors as files for TensorBoard's projector."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli.plot import _vectors


def build_parser() -> Any:
    parser = _common.new_parser(
        "plot projector",
        "Writes tensors.tsv, metadata.tsv and projector_config.pbtxt: `tensorboard --logdir OUT_DIR` shows them, and "
        "projector.tensorflow.org loads the first two. The vectors are chosen as for `elmo-fast plot words`.",
    )
    _vectors.add_options(parser, count=10_000)
    parser.option("out_dir", str, "folder to write", required=True)
    parser.renamed("outdir", "out_dir")
    parser.writes("out_dir", "tensors.tsv", "metadata.tsv", "projector_config.pbtxt")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.pictures import write_projector

    _common.set_up_logging(arguments)
    words, matrix, columns = _vectors.read(arguments)
    folder = write_projector(words, matrix, arguments.out_dir, columns)
    _common.logger().info("%d vectors of %d numbers; to view them: tensorboard --logdir %s", *matrix.shape, folder)
    print(folder)
    return 0
