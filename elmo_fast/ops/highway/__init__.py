"""Highway layers and the projection after them."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.highway import native, reference, triton
from elmo_fast.ops.highway.op import highway

register("highway", native=native, triton=triton, reference=reference)

__all__ = ["highway"]
