"""One layer of the projected LSTM with both clips: definition, kernels and the public function."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.projected_lstm.failure import persistent_failure
from elmo_fast.ops.projected_lstm.op import LSTMWeights, projected_lstm

register(__name__, "native", "triton", "triton_persistent", "reference")

__all__ = ["LSTMWeights", "persistent_failure", "projected_lstm"]
