"""AdaGrad as in TensorFlow, and the gradient clipping before it."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
