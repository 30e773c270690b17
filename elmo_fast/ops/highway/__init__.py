"""Highway layers and the projection after them."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.highway.op import highway

register(__name__, "native", "triton", "reference")

__all__ = ["highway"]
