"""The ops of output layers alone, native and reference in turn."""

from benchmarks.cases import Settings, ops
from benchmarks.results import Report

OPS = ("sampled_softmax", "full_softmax", "negative_sampling", "hierarchical_softmax", "alias_sample")


def run(settings: Settings) -> Report:
    """Rows "ms" per op, precision and backend."""
    return ops.run(settings, OPS)
