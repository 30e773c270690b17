"""Characters to features: embedding, convolutions of several widths, maximum over all windows, activation."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.char_cnn.op import char_cnn

register(__name__, "native", "cuda", "triton", "reference")

__all__ = ["char_cnn"]
