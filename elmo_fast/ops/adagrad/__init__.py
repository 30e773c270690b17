"""AdaGrad as TensorFlow has it, and the clip that goes before it."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.adagrad.op import adagrad_, adagrad_rows_, clip_scale, merged_square_norm, square_norm
from elmo_fast.ops.adagrad.order import RowOrder, row_order

register(__name__, "native", "triton", "reference")

__all__ = ["RowOrder", "adagrad_", "adagrad_rows_", "clip_scale", "merged_square_norm", "row_order", "square_norm"]
