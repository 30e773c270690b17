"""Distinct rows of a matrix of ids and where each came from."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.unique_rows import native, reference
from elmo_fast.ops.unique_rows.op import unique_rows

register("unique_rows", native=native, reference=reference)

__all__ = ["unique_rows"]
