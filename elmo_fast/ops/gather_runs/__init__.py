"""Stretches of stored numbers, laid end to end."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "reference", plain=True)
