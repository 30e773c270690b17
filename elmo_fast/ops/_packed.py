"""Copies of parameters in the form that a kernel needs (16-bit, rearranged), cached until one changes or dies."""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native

_kept: dict[tuple[Any, ...], "_Entry"] = {}
_generation = 0
_lock = threading.RLock()


class _Entry:
    def __init__(self, sources: Sequence[Tensor], copies: list[Tensor], forget: Callable[[Any], Any]) -> None:
        self.sources = [weakref.ref(source, forget) for source in sources]
        self.copies = copies
        self.seen = _seen(sources)

    def is_of(self, sources: Sequence[Tensor]) -> bool:
        return all(kept() is source for kept, source in zip(self.sources, sources, strict=True))


def _seen(sources: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple((s.data_ptr(), s._version, s.dtype) for s in sources)


def packed(
    name: str, sources: Sequence[Tensor], empty: Callable[[], list[Tensor]], fill: Callable[[list[Tensor]], None]
) -> list[Tensor]:
    """The copies that `fill` writes into what `empty` allocates, made again only when a source has changed.

    A change shows in the source's address, dtype or version counter. The new copy is written into the *same* memory, so
    a captured CUDA graph that reads it stays right. A write past the counter (`.data`, torch.distributed) does not
    show: call `refresh_weights`. Tensors of inference mode have no counter, so their copies are not kept.
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
            fill(copies)
            entry = _kept[key] = _Entry(sources, copies, lambda _: _kept.pop(key, None))
        elif entry.seen != (now := _seen(sources)):
            fill(entry.copies)
            entry.seen = now
        return entry.copies


def rounded_copy(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of `tensor` in `dtype`, kept; the tensor itself if it is one."""
    if tensor.dtype == dtype and tensor.is_contiguous():
        return tensor.detach()

    def fill(copies: list[Tensor]) -> None:
        copies[0].copy_(tensor.detach())

    return packed(
        _rounded(dtype), [tensor], lambda: [torch.empty(tensor.shape, dtype=dtype, device=tensor.device)], fill
    )[0]


def _rounded(dtype: torch.dtype) -> str:
    return f"rounded {dtype}"


def kept_rounded(tensor: Tensor) -> Tensor | None:
    """A 16-bit `rounded_copy` of `tensor` that is kept and up to date, or None.

    Code that changes the tensor in place may also change the copy and then call `mark_rounded`, so that the next use
    converts nothing. An outdated copy is left to `packed`: an update that the device skips would not correct it.
    """
    for dtype in (torch.float16, torch.bfloat16):
        entry = _kept.get((_rounded(dtype), id(tensor)))
        if entry is not None and entry.is_of([tensor]) and entry.seen == _seen([tensor]):
            return entry.copies[0]
    return None


def mark_rounded(tensor: Tensor, dtype: torch.dtype) -> None:
    """Declares the cached `rounded_copy` of `tensor` in `dtype` to be up to date."""
    _kept[_rounded(dtype), id(tensor)].seen = _seen([tensor])


def count_replay(changed: Sequence[Tensor], with_copies: Sequence[Tensor]) -> None:
    """Declares that a replayed CUDA graph has changed tensors, which no version counter has seen.

    with_copies: those of `changed` whose rounded copies it has changed too.
    """
    kept = [(tensor, copy.dtype) for tensor in with_copies if (copy := kept_rounded(tensor)) is not None]
    torch.autograd.graph.increment_version(list(changed))
    for tensor, dtype in kept:
        mark_rounded(tensor, dtype)


def packed_bytes() -> int:
    """Memory of all kept copies, in bytes."""
    return sum(copy.nbytes for entry in list(_kept.values()) for copy in entry.copies)


def generation() -> int:
    """How often `clear_packed` ran: graphs and word vectors made before the last time must not be used."""
    return _generation


def clear_packed() -> None:
    """Drops every kept copy; the next use makes it anew, and the modules capture their graphs anew.

    Graphs of your own that read a copy must not be replayed.
    """
    global _generation
    with _lock:
        _generation += 1
        _kept.clear()


def refresh_weights() -> None:
    """Drops all that is kept of parameters: packed and rounded copies, captured CUDA graphs, words' vectors.

    Call it after writing some values of a parameter past torch's version counter: through `.data`, `.numpy()`, DLPack
    or torch.distributed. It is not needed after optimizers, `load_state_dict` and other changes in place under
    `torch.no_grad()`, which move the counter, nor on the CPU after a write to the whole parameter, which a probe of its
    values finds.
    """
    clear_packed()
    if _native.C is not None:
        _native.C.clear_packed()
