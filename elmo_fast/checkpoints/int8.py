"""The weights of products as int8 with a scale for each row, about a quarter of float32's size, and back."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ._complaints import refuse
from .state import State

# What precision="int8" multiplies as int8 (docs/numerics.md); the other tensors stay as they are.
_OF_PRODUCTS = re.compile(
    r"_token_embedder\._(highways\._layers\.\d+|projection)\.weight"
    r"|_elmo_lstm\.(forward|backward)_layer_\d+\.(input_linearity|state_linearity|state_projection)\.weight"
)
_SCALE = ".scale"


def to_int8(state: Mapping[str, Tensor]) -> State:
    """The state with each weight of products as int8 [N, K] and its scale, float32 [N], under the name with ".scale".

    Row n of the weight is about `integers[n] * scale[n]`: scale = largest magnitude / 127.
    """
    found: State = {}
    for name, tensor in state.items():
        if not _OF_PRODUCTS.fullmatch(name):
            found[name] = tensor
            continue
        largest = tensor.detach().abs().amax(1, keepdim=True)
        times = torch.where(largest > 0, 127 / largest, 0.0)
        found[name] = (tensor.detach() * times).round().to(torch.int8)
        found[name + _SCALE] = largest[:, 0] / 127
    return found


def from_int8(state: State, source: Path) -> State:
    """The state in float32. Raises: CheckpointError if the int8 weights and their scales do not fit each other."""
    found, complaints = {}, []
    for name, tensor in state.items():
        if tensor.dtype == torch.int8:
            scale = state.get(name + _SCALE)
            if scale is None or tensor.dim() != 2 or scale.shape != tensor.shape[:1] or scale.dtype != torch.float32:
                given = "none" if scale is None else f"{str(scale.dtype).removeprefix('torch.')} {list(scale.shape)}"
                complaints.append(f"{name}{_SCALE}: wanted float32 {list(tensor.shape[:1])}, found {given}")
            else:
                found[name] = tensor.float() * scale[:, None]
        elif (scaled := state.get(name.removesuffix(_SCALE) if name.endswith(_SCALE) else "")) is None:
            found[name] = tensor
        elif scaled.dtype != torch.int8:
            kind = str(scaled.dtype).removeprefix("torch.")
            complaints.append(f"{name}: wanted a scale of int8 weights, found {kind} in {name.removesuffix(_SCALE)}")
    if complaints:
        refuse(source, complaints)
    return found
