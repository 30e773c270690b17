"""Draws with replacement from any law over the vocabulary."""

from elmo_fast.ops._dispatch import register

# Drawn on the CPU for a GPU too: beside its work, and the copy of S numbers waits for nothing.
register(__name__, "native", "reference", plain=True)
