"""One layer of the projected LSTM with both clips: definition, kernels and the public function."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops._registry import register_replay

register(__name__, "native", "triton", "reference", int8=True)
register_replay("projected_lstm", f"{__name__}.cases")
