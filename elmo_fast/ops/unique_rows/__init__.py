"""Distinct rows of a matrix of ids, where each came from, and the way back."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.unique_rows.op import gather_rows, padded_unique_rows, unique_rows

register(__name__, "native", "triton", "reference")

__all__ = ["gather_rows", "padded_unique_rows", "unique_rows"]
