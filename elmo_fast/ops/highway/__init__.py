"""Highway layers and the projection after them."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.highway import native, reference
from elmo_fast.ops.highway.op import highway

register("highway", native=native, reference=reference)

__all__ = ["highway"]
