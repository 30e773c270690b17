"""Highway layers and the projection after them."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.highway import reference
from elmo_fast.ops.highway.op import highway

register("highway", reference=reference)

__all__ = ["highway"]
