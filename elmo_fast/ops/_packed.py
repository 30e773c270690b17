"""Packed copies of weights on the CPU, and the rule by which a copy still serves.

C++ multiplies with packed weights. It caches none: an op takes the copies as an argument, or packs for itself. Whoever
owns the weights holds a `PackedWeights`, which packs them once and looks at them at every call. A copy serves while

- of a frozen weight with memory of its own: the object, its address, shape, dtype, version counter and 256 of its
  values are the same;
- of any other (trained, part of a larger memory, shared with NumPy or another process): its shape, dtype and a digest
  of all its values are.

A pass that records gradients of the weights packs them anew: an optimizer is about to change them. So does a compiled
or exported program, in which a copy would be a constant.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from elmo_fast.ops import _native, _weights
from elmo_fast.ops._schemas import overload

_pack = overload("pack_weight")


class _Copies(NamedTuple):
    state: list[Any]
    owners: list[Tensor]
    """keeps the ids in `state` from being used again; not weak, because swap_tensors refuses tensors with weak ones"""
    tensors: list[Tensor]


class PackedWeights:
    """Packed copies of the weights of one op, for `packed=` of char_cnn, highway and projected_lstm.

    Hold one beside the weights, for as long as you call the op with them; it packs again when it sees that they have
    changed ({doc}`compile_and_export`). Threads may share it. A copy or a pickle of it is empty.
    """

    def __init__(self) -> None:
        self._copies: _Copies | None = None

    def __reduce__(self) -> tuple[type["PackedWeights"], tuple[()]]:
        return PackedWeights, ()

    def of(self, precision: str, **weights: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the copies of contiguous weights by layout (`pack_weight` in _schemas.py), in order.

        None if the op shall pack for itself. The state is read before the copies are made, and both are replaced
        together: a write meanwhile, or another thread, costs one more packing and never leaves an old copy.
        """
        if torch.compiler.is_compiling():
            return None
        state: list[Any] = [_weights._generation, precision]
        owners: list[Tensor] = []
        trains = torch.is_grad_enabled()
        for weight in itertools.chain(*weights.values()):
            trained, count = weight.requires_grad, weight.numel()
            if (
                type(weight) not in (Tensor, Parameter)
                or (trained and trains)
                or not count
                or not weight.is_contiguous()
            ):
                return None
            try:
                storage = weight.untyped_storage()
            except NotImplementedError:  # a wrapper of torch.func has no memory
                return None
            address, size = weight.data_ptr(), weight.element_size()
            state += (weight.shape, weight.dtype)
            # Memory of other libraries cannot be resized, nor what was handed to NumPy.
            owns = storage.nbytes() == count * size and storage.resizable() and not storage.is_shared()
            if owns and not trained and not weight.is_inference():
                state += (id(weight), address, weight._version, _native.C.sample(address, count, size))
                owners.append(weight)
            else:
                state.append(_native.C.digest(address, count * size))
        copies = self._copies
        if copies is None or copies.state != state:
            tensors = [
                copy for layout, each in weights.items() for weight in each for copy in _pack(weight, layout, precision)
            ]
            copies = self._copies = _Copies(state, owners, tensors)
        return copies.tensors
