"""Stretches of stored numbers, laid end to end."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.gather_runs import native, reference
from elmo_fast.ops.gather_runs.op import gather_runs

register("gather_runs", plain=True, native=native, reference=reference)

__all__ = ["gather_runs"]
