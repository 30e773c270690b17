"""The projected LSTM in Triton, its scan forwards in one launch with the weights on chip; backward as triton."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops.projected_lstm import host, host_persistent, triton
from elmo_fast.ops.projected_lstm.op import ProjectedLSTMArguments

_forward_op = triton.define("projected_lstm_persistent", lambda layer, device, projected: host_persistent.scan)


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """What Triton asks, 16-bit operands, and a GPU that holds a layer on chip; `run` asks for the layer's sizes."""
    why = _triton.unsupported(device, dtype, precision)
    if why is None and precision == "float32":
        why = host_persistent.WANTS_16_BIT
    if why is None and device.type == "cuda":
        why = host_persistent.too_small(device)
    return why


def run(a: ProjectedLSTMArguments) -> tuple[Tensor, Tensor, Tensor]:
    """As elmo_fast.ops.projected_lstm; raises ElmoFastError for a layer that does not fit on chip."""
    layer = host.layer_of(triton.ForwardArguments(*a.of_op(None, [])))
    why = host_persistent.refusal(layer, a.weights[0].weight_hr is not None)
    if why is not None:
        raise ElmoFastError(f"projected_lstm: backend 'triton_persistent' cannot serve this: {why}")
    return triton.run(a, _forward_op)
