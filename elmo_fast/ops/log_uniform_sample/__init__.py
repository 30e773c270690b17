"""Distinct samples from the log-uniform distribution."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "cuda", "reference")
