"""Sampled softmax loss."""

from elmo_fast.ops.sampled_softmax.op import sampled_softmax

__all__ = ["sampled_softmax"]
