"""AdaGrad as TensorFlow has it, and the clip that goes before it."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
