"""Sampled softmax loss."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.sampled_softmax.op import sampled_softmax

register(__name__, "native", "triton", "reference")

__all__ = ["sampled_softmax"]
