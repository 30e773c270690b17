"""The softmax as a path through a binary tree of the vocabulary."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
