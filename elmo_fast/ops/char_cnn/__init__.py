"""Characters to features: embedding, convolutions of several widths, maximum over all windows, activation."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "cuda", "triton", "reference", int8=True)
