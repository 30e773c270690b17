"""Sampled softmax loss."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
