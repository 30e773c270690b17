"""CUDA graphs of functions of tensors, by bucket of shapes, so that launching does not cost more than computing."""

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops._capture import Entry, Function, Pool, capture, out_of_memory, pool_of

Result = TypeVar("Result")
# A bucket gets a graph when it is seen SIGHTS times, because a capture costs more than a run. If all places are taken,
# it must first be seen PATIENCE times without a use of the least recently used graph.
SIGHTS, PATIENCE = 2, 16


class _Seen(NamedTuple):
    """How often a bucket without a graph was seen, and from which call on."""

    times: int
    since: int


class _Places:
    """What a `Graphs` keeps in one pool: graphs, the least recently used first, and the buckets without one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.version: Hashable = None
        self.entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self.seen: OrderedDict[Hashable, _Seen] = OrderedDict()
        self.calls = 0
        self.used: dict[Hashable, int] = {}
        self.owners: dict[Hashable, list[weakref.ref[Tensor]]] = {}

    def evict(self) -> bool:
        """Drops all graphs, and what was seen; whether there was a graph."""
        some = bool(self.entries)
        for each in (self.entries, self.used, self.owners, self.seen):
            each.clear()
        return some

    def drop(self, key: Hashable) -> None:
        """Drops one graph."""
        del self.entries[key], self.used[key], self.owners[key]

    def renew(self, version: Hashable) -> None:
        """Drops the graphs that no call will ask for again: of an older version, or whose owners are gone."""
        self.calls += 1
        for key in [key for key, owners in self.owners.items() if any(owner() is None for owner in owners)]:
            self.drop(key)
        if version != self.version:
            self.evict()
            self.version = version

    def use(self, key: Hashable) -> Entry | None:
        """The graph of the bucket `key`, if it has one; it is now the most recently used."""
        if key in self.entries:
            self.entries.move_to_end(key)
            self.used[key] = self.calls
        return self.entries.get(key)

    def makes_room(self, key: Hashable) -> bool | None:
        """Whether the bucket `key`, which has no graph, gets one now; None: not as long as all places are in use."""
        seen, full = self.seen.pop(key, None), len(self.entries) >= self.limit
        oldest = next(iter(self.entries)) if full else None
        if seen is None or (full and self.used[oldest] > seen.since):
            self.seen[key] = _Seen(1, self.calls)
        else:
            self.seen[key] = _Seen(seen.times + 1, seen.since)
        if len(self.seen) > 8 * self.limit:
            self.seen.popitem(last=False)
        if not full:
            return self.seen[key].times >= SIGHTS
        if self.seen[key].times < PATIENCE:
            return None if seen is not None else False
        self.drop(oldest)
        return True


class Graphs:
    """The captured runs of one function's buckets, at most `limit` on each stream."""

    def __init__(self, limit: int = 16, capturing: Callable[[Function, list[Tensor], Pool], Entry] = capture) -> None:
        self.limit = limit
        self.capturing = capturing
        self.refused: set[Hashable] = set()
        self._places: dict[Pool, _Places] = {}
        self._told = False

    def __len__(self) -> int:
        """The number of graphs."""
        return sum(len(places.entries) for places in list(self._places.values()))

    def run(
        self,
        key: Hashable,
        version: Hashable,
        device: torch.device,
        function: Function,
        empty: Callable[[], list[Tensor]],
        replayed: Callable[[Entry], Result],
        owners: Sequence[Tensor] = (),
    ) -> Result | None:
        """The result of `replayed` with the graph of `key`. None if the caller must call its function itself, because
        the bucket is new or cannot be captured (a warning said why).

        key: all that a run depends on besides the tensors' values; version: the part of it that never comes back once
        it has changed, such as the versions of weights; empty: makes the inputs' memory; replayed: writes the inputs,
        replays, copies the outputs, and changes nothing else before that is done; owners: the graph is dropped with
        them, if `function` does not keep them alive.
        """
        pool = pool_of(device)
        with pool.lock:
            places = self._places.setdefault(pool, _Places(self.limit))
            pool.users.add(places)
            places.renew(version)
            if key in self.refused:
                return None
            entry = places.use(key) or self._captured(places, pool, key, function, empty)
            if entry is None:
                return None
            places.owners.setdefault(key, [weakref.ref(owner) for owner in owners])
            try:
                return replayed(entry)
            except (RuntimeError, ElmoFastError) as error:
                if not out_of_memory(error):
                    raise
                why = str(error)
            del entry
            pool.evict()
            self._refuse(key, why)
            return None

    def _captured(
        self, places: _Places, pool: Pool, key: Hashable, function: Function, empty: Callable[[], list[Tensor]]
    ) -> Entry | None:
        """The graph of a bucket that has none, where it gets one now; out of memory, all others make room for it."""
        room = places.makes_room(key)
        if room is None:
            self._tell()
        for _ in range(2 if room else 0):
            try:
                # Never in inference mode, even if the caller is: tensors made in it cannot be written outside of it.
                with torch.inference_mode(False), torch.no_grad():
                    places.entries[key] = self.capturing(function, empty(), pool)
                return places.use(key)
            except (RuntimeError, ElmoFastError) as error:
                why, short = str(error), out_of_memory(error)
            if not (short and pool.evict()):
                break
        if room:
            self._refuse(key, why)
        return None

    def _refuse(self, key: Hashable, why: str) -> None:
        self.refused.add(key)
        warnings.warn(f"running without a CUDA graph, launch by launch: {why}", PerformanceWarning, stacklevel=4)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"batches come in more than {self.limit} sizes, for which there are CUDA graphs; the others run launch "
                "by launch. Batches of fewer sizes run faster",
                PerformanceWarning,
                stacklevel=4,
            )


def release(device: torch.device) -> None:
    """Drops all graphs of the device's current stream, which frees their memory."""
    pool = pool_of(device)
    with pool.lock:
        pool.evict()


def bucket(n: int, step: int) -> int:
    """The size a captured graph has for n: the next power of two up to `step`, then multiples of it."""
    return 1 << max(0, n - 1).bit_length() if n <= step else -(-n // step) * step


def write(into: Tensor, value: Tensor, sizes: Sequence[int]) -> None:
    """Copies `value` into the leading part of `into` that has the sizes of its first dimensions."""
    for dimension, size in enumerate(sizes):
        into = into.narrow(dimension, 0, size)
    into.copy_(value)
