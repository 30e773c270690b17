"""Stretches of stored numbers, laid end to end."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.gather_runs.op import gather_runs

register(__name__, "native", "reference", plain=True)

__all__ = ["gather_runs"]
