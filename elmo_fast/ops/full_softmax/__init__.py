"""Softmax loss over the whole vocabulary."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.full_softmax.op import full_softmax

register(__name__, "native", "triton", "reference")

__all__ = ["full_softmax"]
