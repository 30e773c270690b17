"""Runs of stored numbers, concatenated."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "reference", plain=True)
