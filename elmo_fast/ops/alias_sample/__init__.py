"""Draws with replacement from any law over the vocabulary."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "reference")
