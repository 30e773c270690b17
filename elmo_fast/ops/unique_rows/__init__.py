"""Distinct rows of a matrix of ids, where each came from, and the way back."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
