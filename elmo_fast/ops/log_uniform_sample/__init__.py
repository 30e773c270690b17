"""Distinct samples under the log-uniform law."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS, expected_counts, log_expected_counts, log_uniform_sample

register(__name__, "native", "cuda", "reference")

__all__ = ["CORRECTIONS", "expected_counts", "log_expected_counts", "log_uniform_sample"]
