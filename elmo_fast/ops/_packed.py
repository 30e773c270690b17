"""Copies of weights as kernels read them, and the rule by which a copy still serves.

C++ multiplies with packed weights, Triton with rounded and rearranged ones. No op caches them: it takes the copies as
its argument `packed`, or makes its own. Whoever owns the weights holds a `PackedWeights`, which makes them once and
looks at the weights at every call. A copy serves while

- of a frozen weight with memory of its own: the object, its address, shape, dtype, version counter and 256 of its
  values are the same;
- of any other (trained, part of a larger memory, shared with NumPy or another process): its shape, dtype and a digest
  of all its values are;
- on a GPU, where a look at values would wait for it: object, address, shape, dtype and version counter are the same,
  and the weight has its memory to itself.

A call of this library that owns the weights (`owned_weights`: embedding, an evaluation) looks at them once. A pass
that records gradients makes copies of its own: an optimizer is about to change the weights. So does a compiled or
exported program, in which a copy would be a constant.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.optimizer import register_optimizer_step_post_hook

from elmo_fast.ops import _native
from elmo_fast.ops._schemas import overload

_pack = overload("pack_weight")
_generation = 0
_owner = threading.local()


@contextlib.contextmanager
def owned_weights(call: object) -> Iterator[None]:
    """Look at weights on the CPU only once in the blocks of one `call`, which owns them until it ends.

    Each of its threads enters a block of its own.
    """
    before, _owner.call = getattr(_owner, "call", None), call
    try:
        yield
    finally:
        _owner.call = before


def refresh_weights() -> None:
    """Drop everything cached from parameters: packed and rounded copies, and captured CUDA graphs.

    Call it after writing to a parameter in a way that bypasses torch's version counter: through `.data`, `.numpy()`,
    DLPack or torch.distributed, from another process, or by an optimizer's own CUDA graph. It is not needed after
    `load_state_dict`, torch's optimizers (fused ones too) and other changes in place under `torch.no_grad()`, nor on
    the CPU for parameters that require a gradient, because all values of those are compared. Your own graphs that read
    a copy must not be replayed.
    """
    global _generation
    _generation += 1


def generation() -> int:
    """Return how often `refresh_weights` ran: copies and graphs from before the last run must not be used."""
    return _generation


def _count_fused_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Increment the version counters of parameters that a fused optimizer has written, as torch does not."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version([each for each in group["params"] if not each.is_inference()])


register_optimizer_step_post_hook(_count_fused_step)


def pack(precision: str, **weights: Sequence[Tensor]) -> list[Tensor]:
    """Return C++'s copies of contiguous weights by layout (`pack_weight` in _schemas.py), in order."""
    return [copy for layout, each in weights.items() for weight in each for copy in _pack(weight, layout, precision)]


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


class _Copies(NamedTuple):
    state: list[Any]
    owners: list[Tensor]
    """keeps the ids in `state` from being used again; not weak, because swap_tensors refuses tensors with weak ones"""
    tensors: list[Tensor]
    streams: list[torch.cuda.Stream]
    """on a GPU: the one that wrote them, and those that read them"""
    written: torch.cuda.Event | None


class PackedWeights:
    """Copies of the weights of one op, for `packed=` of char_cnn, highway and projected_lstm.

    Hold one beside the weights, for as long as you call the op with them; it makes new copies when it sees that they
    have changed ({doc}`compile_and_export`). Threads may share it. A copy or a pickle of it is empty.
    """

    def __init__(self) -> None:
        self._copies: dict[str, _Copies] = {}  # by precision: a CUDA graph may go on reading those of another one
        self._seen_by: dict[str, object] = {}  # the call that owns the weights since they were last looked at

    def __reduce__(self) -> tuple[type["PackedWeights"], tuple[()]]:
        return PackedWeights, ()

    def of(self, precision: str, weights: Sequence[Tensor], copied: Callable[[], list[Tensor]]) -> list[Tensor] | None:
        """Return the copies of `weights` that `copied` makes, now or before; None if the op shall make its own.

        The state is read before the copies are made, and both are replaced together: a write meanwhile, or another
        thread, costs one more packing and never leaves an old copy.
        """
        if not weights or torch.compiler.is_compiling():
            return None
        state: list[Any] = [_generation]
        owners: list[Tensor] = []
        records, call = torch.is_grad_enabled(), getattr(_owner, "call", None)
        if call is not None and not records and self._seen_by.get(precision) is call:
            return self._copies[precision].tensors
        for weight in weights:
            trained, count = weight.requires_grad, weight.numel()
            if (
                type(weight) not in (Tensor, Parameter)
                or (trained and records)
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
            owns, on_gpu = storage.nbytes() == count * size and storage.resizable(), weight.is_cuda
            owns = owns and (on_gpu or not storage.is_shared())  # torch calls every GPU's memory shared
            if on_gpu or _native.C is None:
                if not owns or weight.is_inference():
                    return None
                state += (id(weight), address, weight._version)
                owners.append(weight)
            elif owns and not trained and not weight.is_inference():
                state += (id(weight), address, weight._version, _native.C.sample(address, count, size))
                owners.append(weight)
            else:
                state.append(_native.C.digest(address, count * size))
        if weights[0].is_cuda:
            return self._of_gpu(precision, state, owners, copied)
        copies = self._copies.get(precision)
        if copies is None or copies.state != state:
            copies = self._copies[precision] = _Copies(state, owners, copied(), [], None)
        self._seen_by[precision] = call
        return copies.tensors

    def _of_gpu(
        self, precision: str, state: list[Any], owners: list[Tensor], copied: Callable[[], list[Tensor]]
    ) -> list[Tensor] | None:
        """Return copies that this stream may read; new values go into the same memory, which captured graphs read."""
        copies, capturing = self._copies.get(precision), torch.cuda.is_current_stream_capturing()
        stream = torch.cuda.current_stream(owners[0].device)
        if copies is None or copies.state != state:
            if capturing:  # written at a replay alone, in memory of the graph
                return None
            with torch.inference_mode(False):  # so that they can be written again outside of it
                tensors = copied()
                if copies is not None and list(map(_layout, tensors)) == list(map(_layout, copies.tensors)):
                    for other in copies.streams:
                        if other != stream:
                            stream.wait_stream(other)
                    for old, new in zip(copies.tensors, tensors, strict=True):
                        old.copy_(new)
                    tensors = copies.tensors
            copies = self._copies[precision] = _Copies(state, owners, tensors, [stream], stream.record_event())
        elif stream not in copies.streams and not capturing:
            assert copies.written is not None
            stream.wait_event(copies.written)
            copies.streams.append(stream)
            for copy in copies.tensors:
                copy.record_stream(stream)
        return copies.tensors
