"""The sizes and options of a call of the registered op, for the host functions of Triton's backends."""

from typing import Any, NamedTuple

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton


class Layer(NamedTuple):
    """What does not change within a call: sizes, clips (inf: none) and the dtype of the products' operands."""

    directions: int
    batch: int
    time: int
    width: int
    size: int
    cells: int
    reverse: tuple[bool, ...]
    cell_clip: float
    projection_clip: float
    residual: bool
    dtype: torch.dtype


def layer_of(a: Any) -> Layer:
    """The sizes and options among a registered op's arguments. Raises ElmoFastError where a step is too large."""
    (batch, time, width), (gates, size) = a.inputs[0].shape, a.weight_hh[0].shape
    if batch * gates >= 2**31:
        raise ElmoFastError(
            f"projected_lstm: a step of B={batch} rows and H={gates // 4} cells is too large; "
            f"give B <= {(2**31 - 1) // gates}"
        )
    return Layer(
        len(a.inputs), batch, time, width, size, gates // 4, tuple(a.reverse), a.cell_clip, a.projection_clip,
        a.residual, _triton.operand_dtype(a.precision),
    )  # fmt: skip


def pre_activation_dtype(layer: Layer) -> torch.dtype:
    """With 16-bit operands float16: it keeps more digits of a pre-activation than bfloat16, and its range suffices."""
    return torch.float32 if layer.dtype == torch.float32 else torch.float16
