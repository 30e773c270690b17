"""Sampled softmax loss."""

from elmo_fast.ops.sampled_softmax.op import sampled_softmax
from elmo_fast.ops.sampled_softmax.rows import coalesced, table_rows

__all__ = ["coalesced", "sampled_softmax", "table_rows"]
