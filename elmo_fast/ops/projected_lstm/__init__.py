"""One layer of the projected LSTM with both clips: definition, kernels and the public function."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.projected_lstm import native, reference, triton, triton_persistent
from elmo_fast.ops.projected_lstm.op import LSTMWeights, projected_lstm
from elmo_fast.ops.projected_lstm.triton_persistent import persistent_failure

register("projected_lstm", native=native, triton=triton, triton_persistent=triton_persistent, reference=reference)

__all__ = ["LSTMWeights", "persistent_failure", "projected_lstm"]
