"""One layer of the projected LSTM with both clips: definition, kernels and the public function."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference", int8=True)
