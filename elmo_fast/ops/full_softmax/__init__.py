"""Softmax loss over the whole vocabulary."""

from elmo_fast.ops.full_softmax.op import full_softmax

__all__ = ["full_softmax"]
