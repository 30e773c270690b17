"""Distinct samples under the log-uniform law."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "cuda", "reference")
