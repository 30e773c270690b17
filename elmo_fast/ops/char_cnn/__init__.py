"""Characters to features: embedding, convolutions of several widths, maximum over all windows, activation."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.char_cnn import cuda, native, reference, triton
from elmo_fast.ops.char_cnn.op import char_cnn

register("char_cnn", native=native, cuda=cuda, triton=triton, reference=reference)

__all__ = ["char_cnn"]
