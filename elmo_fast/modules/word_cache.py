"""A cache of word vectors across batches at inference."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import torch
from torch import Tensor

from elmo_fast.ops._weights import digest, is_alone

_PROBES = 64


class WordCache:
    """At most `size` word vectors.

    The least recently used is dropped first. Exact, since a vector depends on its word alone.

    It is cleared when a parameter has changed: another tensor, another version counter, another value at one of up to
    64 positions spread over each (the counter misses writes through `.data`), or, where other tensors hold a
    parameter's memory or it has no counter, another digest of all its values. A copy or a pickle of the cache is empty.
    Several threads may share one cache.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Forget every word."""
        with self._lock:
            self._slots: OrderedDict[bytes, int] = OrderedDict()  # a new one: a lookup under way stores nothing here
            self._vectors: Tensor | None = None
            self._seen: tuple[Hashable, ...] = ()
            self._values: Tensor | None = None
            self._digests: list[int] = []
            self._doubtful = False

    def __len__(self) -> int:
        return len(self._slots)

    def __reduce__(self) -> tuple[type["WordCache"], tuple[int]]:
        return WordCache, (self.size,)

    def lookup(
        self, words: Tensor, encode: Callable[[Tensor], Tensor], parameters: Iterable[Tensor], *settings: Hashable
    ) -> Tensor:
        """Return the vectors [U, D] of distinct words [U, C] (whole numbers, on the CPU).

        `encode` computes only those that are not cached.

        `parameters` and `settings` are all that the vectors depend on besides the words.
        """
        rows = np.ascontiguousarray(words.numpy().astype(np.int32))
        width, flat = rows.shape[1] * rows.itemsize, rows.tobytes()
        keys = [flat[start : start + width] for start in range(0, len(flat), width)]
        with self._lock:
            self._forget_if_changed(list(parameters), settings)
            known, slots = self._slots, [self._slots.get(key, -1) for key in keys]
            missing = [row for row, slot in enumerate(slots) if slot < 0]
            for key, slot in zip(keys, slots, strict=True):
                if slot >= 0:
                    known.move_to_end(key)
            vectors = None
            if self._vectors is not None and len(missing) < len(keys):
                vectors = self._vectors[[max(slot, 0) for slot in slots]]
        if vectors is not None and not missing:
            return vectors
        fresh = encode(words[missing] if len(missing) < len(keys) else words)  # other threads may look up meanwhile
        with self._lock:
            if self._slots is known:
                self._keep([keys[row] for row in missing], fresh)
        if vectors is None:
            return fresh
        vectors[missing] = fresh
        return vectors

    def _keep(self, keys: list[bytes], fresh: Tensor) -> None:
        """Store the last `size` of the fresh vectors, in place of the least recently used ones if there is no room."""
        keys, fresh, slots = keys[-self.size :], fresh[-self.size :].detach(), []
        for key in keys:
            slot = self._slots.get(key, len(self._slots))
            if slot == self.size:
                slot = self._slots.popitem(last=False)[1]
            self._slots[key] = slot
            self._slots.move_to_end(key)  # another thread may have stored it meanwhile
            slots.append(slot)
        rows, size = max(slots, default=-1) + 1, 0 if self._vectors is None else len(self._vectors)
        if rows > size:
            with torch.inference_mode(False):  # so that the store can be written in and out of inference mode
                grown = fresh.new_zeros(min(self.size, max(2 * rows, 1024)), fresh.shape[1])
                if self._vectors is not None:
                    grown[:size] = self._vectors
            self._vectors = grown
        if self._vectors is not None:
            self._vectors[slots] = fresh

    def _forget_if_changed(self, parameters: list[Tensor], settings: tuple[Hashable, ...]) -> None:
        state = (*settings, *((p.data_ptr(), -1 if p.is_inference() else p._version, p.dtype) for p in parameters))
        flat = [p.detach().flatten() for p in parameters]
        values = torch.cat([each[:: max(each.numel() // _PROBES, 1)].double() for each in flat])
        # Who holds a parameter's memory beside it may have written, and may be gone at the next look. Another thread
        # that reads the parameter holds it too, for a moment.
        doubtful = not all(map(is_alone, parameters))
        if (
            state != self._seen
            or self._values is None
            or not torch.equal(values, self._values)
            or ((doubtful or self._doubtful) and [digest(p) for p in parameters] != self._digests)
        ):
            self.clear()
            self._seen, self._values, self._digests = state, values, [digest(p) for p in parameters]
        self._doubtful = doubtful
