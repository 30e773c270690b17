"""Highway layers and the projection after them."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference", int8=True)
