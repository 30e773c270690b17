"""Context-free vectors of words, cached while one call embeds many batches."""

import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


class WordCache:
    """At most `size` word vectors; the least recently used one is dropped first.

    A word's vector depends on the word and the weights alone, so a cache belongs to one call that owns the weights
    while it runs (`embed_file`, `encode`, an evaluation): it is created when the call starts and dropped when it ends.
    It never looks at the weights. Several threads of the call may share it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._slots: OrderedDict[bytes, int] = OrderedDict()
        self._vectors: Tensor | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def lookup(self, words: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the vectors [U, D] of distinct words [U, C] (whole numbers, on the CPU).

        `encode` computes only those that are not cached.
        """
        rows = np.ascontiguousarray(words.numpy().astype(np.int32))
        width, flat = rows.shape[1] * rows.itemsize, rows.tobytes()
        keys = [flat[start : start + width] for start in range(0, len(flat), width)]
        with self._lock:
            slots = [self._slots.get(key, -1) for key in keys]
            missing = [row for row, slot in enumerate(slots) if slot < 0]
            for key, slot in zip(keys, slots, strict=True):
                if slot >= 0:
                    self._slots.move_to_end(key)
            vectors = None
            if self._vectors is not None and len(missing) < len(keys):
                vectors = self._vectors[[max(slot, 0) for slot in slots]]
        if vectors is not None and not missing:
            return vectors
        fresh = encode(words[missing] if len(missing) < len(keys) else words)  # other threads may look up meanwhile
        with self._lock:
            self._store([keys[row] for row in missing], fresh)
        if vectors is None:
            return fresh
        vectors[missing] = fresh
        return vectors

    def _store(self, keys: list[bytes], fresh: Tensor) -> None:
        """Store the last `size` of the fresh vectors, in place of the least recently used ones if there is no room."""
        keys, fresh, slots = keys[-self.size :], fresh[-self.size :], []
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
