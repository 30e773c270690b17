"""Draws with replacement from any law over the vocabulary."""

from elmo_fast.ops.alias_sample.op import AliasTable, alias_sample, alias_table

__all__ = ["AliasTable", "alias_sample", "alias_table"]
