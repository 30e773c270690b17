"""Rounded and rearranged copies of weights on a GPU: when a copy still serves, and their cache.

A copy serves while address, dtype and version counter of the weight are the same. A look at values would make every
step wait for the GPU. Fused optimizers, which do not count, are made to; copies of a weight that is part of a larger
memory (FSDP) or in memory of another library are written at every use. `_packed.py` is the rule for the CPU.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

_kept: dict[tuple[Any, ...], "_Entry"] = {}
_generation = 0
_lock = threading.RLock()


def _count_fused_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Increment the version counters of parameters that a fused optimizer has written, as torch does not."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version([each for each in group["params"] if not each.is_inference()])


register_optimizer_step_post_hook(_count_fused_step)


def _stream(tensor: Tensor) -> torch.cuda.Stream | None:
    """Return the stream whose work on copies must be ordered by events; None on a CPU and during a capture.

    CUDA is not initialized if tensors only stand in for a GPU's, without memory.
    """
    if not (tensor.is_cuda and torch.cuda.is_initialized()) or torch.cuda.is_current_stream_capturing():
        return None
    return torch.cuda.current_stream(tensor.device)


class _Entry:
    """Copies of some weights, and the streams that write and read them.

    Any stream may ask for a copy: it waits for the event after the write, and a later write waits for the reader.
    """

    def __init__(self, sources: Sequence[Tensor], copies: list[Tensor], forget: Callable[[Any], Any]) -> None:
        self.sources = [weakref.ref(source, forget) for source in sources]
        self.copies = copies
        self.state: tuple[Any, ...] | None = None
        self.written: tuple[torch.cuda.Stream, torch.cuda.Event] | None = None
        self.readers: list[torch.cuda.Stream] = []

    def is_of(self, sources: Sequence[Tensor]) -> bool:
        return all(reference() is source for reference, source in zip(self.sources, sources, strict=True))

    def before_writing(self) -> None:
        if (stream := _stream(self.copies[0])) is not None:
            for other in (*self.readers, *((self.written[0],) if self.written else ())):
                if other != stream:
                    stream.wait_stream(other)

    def after_writing(self, state: tuple[Any, ...]) -> None:
        self.state = state
        if (stream := _stream(self.copies[0])) is not None:
            self.written, self.readers = (stream, stream.record_event()), []

    def write(self, sources: Sequence[Tensor], fill: Callable[[list[Tensor]], None]) -> None:
        state = _state_of(sources)
        self.before_writing()
        fill(self.copies)
        self.after_writing(state)

    def read(self) -> list[Tensor]:
        stream = _stream(self.copies[0])
        if stream is not None and self.written is not None and stream != self.written[0] and stream not in self.readers:
            stream.wait_event(self.written[1])
            self.readers.append(stream)
            for copy in self.copies:
                copy.record_stream(stream)
        return self.copies


class _Same:
    """Equal to another of the same tensor object, while it is alive; an address or id alone may be used again."""

    __slots__ = ("reference",)

    def __init__(self, tensor: Tensor) -> None:
        self.reference = weakref.ref(tensor)

    def __eq__(self, other: object) -> bool:
        tensor = self.reference()
        return isinstance(other, _Same) and tensor is not None and tensor is other.reference()

    def __hash__(self) -> int:
        raise TypeError("compared, never a key")


def identities(tensors: Iterable[Tensor]) -> list[tuple[Any, ...]]:
    """Return what is equal while these are the same tensors, in the same place, that need gradients or not.

    A captured graph reads them, and cached copies of them, by address.
    """
    return [(_Same(tensor), tensor.data_ptr(), tensor.dtype, tensor.requires_grad) for tensor in tensors]


def versions(tensors: Iterable[Tensor]) -> list[int]:
    """Return what is equal while no tensor has been written in a way that torch counts."""
    return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


def addresses(tensors: Iterable[Tensor]) -> list[tuple[Any, ...]]:
    """Return where tensors are, and whether they need gradients: what `identities` has besides the tensors."""
    return [(tensor.data_ptr(), tensor.dtype, tensor.requires_grad) for tensor in tensors]


def _state_of(sources: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple((s.data_ptr(), s._version, s.dtype) for s in sources)


def _owns_memory(tensor: Tensor) -> bool:
    """Return whether torch allocated memory for this tensor alone, as far as its storage shows."""
    storage = tensor.untyped_storage()
    return storage.nbytes() == tensor.nbytes and storage.resizable()


def packed(
    name: str, sources: Sequence[Tensor], empty: Callable[[], list[Tensor]], fill: Callable[[list[Tensor]], None]
) -> list[Tensor]:
    """Return the copies that `fill` writes into what `empty` allocates, written again only if a source has changed.

    A change shows in the source's address, dtype or version counter; a source in larger memory counts as changed. New
    values go into the *same* memory, so a captured CUDA graph that reads it stays right. A write that
    bypasses the counter (`.data`, torch.distributed) is not noticed: call `refresh_weights`. Tensors of inference mode
    have no counter, so their copies are not cached.
    """
    if any(source.is_inference() for source in sources):
        copies = empty()
        fill(copies)
        return copies
    key = (name, *(id(source) for source in sources))
    with _lock:
        entry = _kept.get(key)
        if entry is None or not entry.is_of(sources):
            with torch.inference_mode(False):  # so that they can be written again outside of it
                copies = empty()
            entry = _Entry(sources, copies, lambda _: _kept.pop(key, None))
            entry.write(sources, fill)
            _kept[key] = entry
        elif entry.state != _state_of(sources) or not all(map(_owns_memory, sources)):
            entry.write(sources, fill)
        return entry.read()


def rounded_copy(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous cached copy of `tensor` in `dtype`, or the tensor itself if it already is one."""
    if tensor.dtype == dtype and tensor.is_contiguous():
        return tensor.detach()
    return rounded_copies([tensor], dtype)[0]


def rounded_copies(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return cached copies of tensors of one shape in `dtype`, one behind the other: [n, ...]."""
    shape = (len(tensors), *tensors[0].shape)

    def fill(copies: list[Tensor]) -> None:
        torch._foreach_copy_(list(copies[0].unbind(0)), [tensor.detach() for tensor in tensors])

    def empty() -> list[Tensor]:
        return [torch.empty(shape, dtype=dtype, device=tensors[0].device)]

    return packed(f"{_ROUNDED}{dtype}", tensors, empty, fill)[0]


_ROUNDED = "rounded to "


def fresh_roundings(tensors: Iterable[Tensor]) -> list[_Entry]:
    """Return the `rounded_copies` of only such tensors that are cached and up to date, of each tensor in one of them.

    Code that changes the tensors in place may also change the copies (`roundings_of`) and then call `mark_rounded`, so
    that the next use converts nothing. An outdated copy is left to `packed`: an update that the device skips would not
    correct it.
    """
    left, fresh = {id(tensor) for tensor in tensors}, []
    for (name, *ids), entry in list(_kept.items()):
        if name.startswith(_ROUNDED) and left.issuperset(ids):
            sources = [reference() for reference in entry.sources]
            if None not in sources and entry.state == _state_of(cast(list[Tensor], sources)):
                fresh.append(entry)
                left.difference_update(ids)
    return fresh


def roundings_of(entries: Iterable[_Entry]) -> dict[int, Tensor]:
    """Return the copy of each tensor, by the tensor's id; this stream may write it."""
    copies: dict[int, Tensor] = {}
    for entry in entries:
        entry.before_writing()
        copies |= {id(reference()): copy for reference, copy in zip(entry.sources, entry.copies[0], strict=True)}
    return copies


def mark_rounded(entries: Iterable[_Entry]) -> None:
    """Mark cached copies, which this stream has written, as up to date."""
    for entry in entries:
        sources = [reference() for reference in entry.sources]
        if None not in sources:
            entry.after_writing(_state_of(cast(list[Tensor], sources)))


def generation() -> int:
    """Return how often `refresh_weights` ran: copies and graphs from before the last run must not be used."""
    return _generation


def refresh_weights() -> None:
    """Drop everything cached from parameters: packed and rounded copies, and captured CUDA graphs.

    Call it after writing to a parameter in a way that bypasses torch's version counter: through `.data`, `.numpy()`,
    DLPack or torch.distributed, from another process, or by an optimizer's own CUDA graph. It is not needed after
    `load_state_dict`, torch's optimizers (fused ones too) and other changes in place under `torch.no_grad()`, nor on
    the CPU for parameters that require a gradient, because all values of those are compared. Your own graphs that read
    a copy must not be replayed.
    """
    global _generation
    with _lock:
        _generation += 1
        _kept.clear()
