"""Choices that were measured on this card by `elmo-fast tune`; none is made by itself, and a choice stays as it is."""

import contextlib
from collections.abc import Iterator, Mapping

import torch

from elmo_fast.ops import _card
from elmo_fast.ops._card_files import CardFile

_files: dict[torch.device, dict[str, int]] = {}
_forced: dict[str, int] = {}
_times_kept = 0


def file_of(device: torch.device) -> CardFile[int]:
    """The choices on this card, a whole number each: a batch, the place of a tile in its list, 0 or 1."""
    return CardFile(_card.identity(device), int, "choices")


def choice(name: str, device: torch.device) -> int | None:
    """What was chosen for `name` on this card; None where nothing was."""
    if name in _forced:
        return _forced[name]
    if not _card.present(device):
        return None
    if device not in _files:
        _files[device] = file_of(device).read()
    return _files[device].get(name)


choice._dynamo_marked_constant = True  # type: ignore[attr-defined]  # read once, and the same in every call


def keep(device: torch.device, choices: Mapping[str, int]) -> None:
    """Keeps choices for this process and later ones, until they are measured again. Graphs that were captured under
    other choices are not replayed any more."""
    global _times_kept
    file_of(device).add(choices)
    _files.clear()
    _times_kept += 1


@contextlib.contextmanager
def forced(choices: Mapping[str, int]) -> Iterator[None]:
    """Within it these are the choices: to measure them. Names are those of `choice`."""
    before = dict(_forced)
    _forced.update(choices)
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)


def in_force() -> tuple[tuple[str, int], ...]:
    """The choices that are forced now: what is captured under some serves no call under others."""
    return tuple(sorted(_forced.items()))


def times_kept() -> int:
    """How often `keep` has changed the choices in this process: graphs captured before the last time are dropped."""
    return _times_kept


def tile_of(op: str, rows: int, width: int, precision: str) -> str:
    """Which tile of its list an op takes for so many rows: their bucket is the next power of two."""
    bucket = 1 << max(0, rows - 1).bit_length()
    return f"tile of {op}, up to {bucket} rows of {width}, {precision}"


def graphs(precision: str) -> str:
    """Whether CUDA graphs are replayed: 0 or 1."""
    return f"graphs, {precision}"


def distinct_words(precision: str) -> str:
    """Whether each distinct word of a batch is encoded once, and not all: 0 or 1."""
    return f"distinct words, {precision}"
