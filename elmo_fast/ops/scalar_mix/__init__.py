"""Weighted sums of layers."""

from elmo_fast.ops.scalar_mix.op import scalar_mix

__all__ = ["scalar_mix"]
