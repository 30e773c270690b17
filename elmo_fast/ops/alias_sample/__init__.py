"""Draws with replacement from any law over the vocabulary."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.alias_sample.op import AliasTable, alias_sample, alias_table

register(__name__, "native", "reference")

__all__ = ["AliasTable", "alias_sample", "alias_table"]
