"""The projected LSTM in Triton, its scan forwards in one launch with the weights on chip; backward as triton."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops.projected_lstm import triton

if TYPE_CHECKING:
    from elmo_fast.ops.projected_lstm.op import LSTMWeights

if _triton.WHY_NOT is None:
    from elmo_fast.ops.projected_lstm import host_persistent

    _forward_op = triton.define("projected_lstm_persistent", lambda layer, device, projected: host_persistent.scan)


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """What Triton asks, 16-bit operands, and a GPU that holds a layer on chip; `run` asks for the layer's sizes."""
    why = _triton.unsupported(device, dtype, precision)
    if why is None and precision == "float32":
        why = 'the persistent scan keeps 16-bit weights on chip; take precision="float16" or "bfloat16"'
    if why is None and device.type == "cuda":
        why = host_persistent.too_small(device)
    return why


def run(
    inputs: list[Tensor], weights: "list[LSTMWeights]", lengths: Tensor | None, state: tuple[Tensor, Tensor] | None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """As elmo_fast.ops.projected_lstm; raises ElmoFastError for a layer that does not fit on chip."""
    names = ("reverse", "cell_clip", "projection_clip", "residual", "precision")
    layer = triton._layer(inputs, [w.weight_hh for w in weights], [options[name] for name in names])
    why = host_persistent.refusal(layer, weights[0].weight_hr is not None)
    if why is not None:
        raise ElmoFastError(f"projected_lstm: backend 'triton_persistent' cannot serve this: {why}")
    return triton.run(inputs, weights, lengths, state, **options, op=_forward_op)


def persistent_failure() -> str | None:
    """One sentence if a persistent scan has failed since the last call, else None; waits for the GPUs that ran one.

    A block gives up when others have not arrived for seconds, which only a fault can cause. What it could not compute
    is NaN then, and every other number is right. Nothing else in the package waits for this: call it where you wait.
    """
    if _triton.WHY_NOT is not None:
        return None
    failed = [device for device, raised in host_persistent.flags.items() if bool(raised.item())]
    for device in failed:
        host_persistent.flags[device].zero_()
    if not failed:
        return None
    return (
        f"projected_lstm: on {', '.join(map(str, failed))} the blocks of a persistent scan did not all arrive, so that "
        'its results hold NaN; use backend="triton" there'
    )
