"""Weighted sums of layers."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.scalar_mix.op import scalar_mix

register(__name__, "native", "triton", "reference")

__all__ = ["scalar_mix"]
