"""The compiled library: importing this module registers torch.ops.elmo_fast.*; ImportError where it cannot be loaded.

It is a plain library of no Python, which uses torch's stable C ABI alone: one build serves every torch from 2.11 on.
"""

import ctypes
import itertools
import pathlib
import weakref

import torch

PATH = pathlib.Path(__file__).with_name("_C.ops.so")
if not PATH.is_file():
    raise ImportError(f"there is no {PATH.name}")
try:
    torch.ops.load_library(PATH)
    _library = ctypes.CDLL(str(PATH))
except OSError as _error:
    raise ImportError(str(_error)) from _error

for _name, _result in {
    "why_no_cuda": ctypes.c_char_p,
    "error": ctypes.c_char_p,
    "isa": ctypes.c_char_p,
    "isas": ctypes.c_char_p,
    "limit_isa": ctypes.c_char_p,
    "packed_count": ctypes.c_int64,
    "packed_bytes": ctypes.c_int64,
    "idle_buffer_bytes": ctypes.c_int64,
}.items():
    getattr(_library, f"elmo_fast_{_name}").restype = _result

_why = _library.elmo_fast_why_no_cuda()
has_cuda: bool = _why is None
why_no_cuda: str | None = None if _why is None else _why.decode()

# torch's stable ABI has no weak reference to a storage, which the cache of packed weights needs: Python has one.
_numbers = itertools.count(1)
_storages: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}


def number_of(storage: torch.UntypedStorage) -> int:
    """Return the number of a living storage, which no other one ever has; what was packed of it is dropped with it."""
    key, number = id(storage), next(_numbers)

    def forget(dead: weakref.ref[torch.UntypedStorage]) -> None:
        if (at := _storages.get(key)) is not None and at[0] is dead:
            del _storages[key]
        _library.elmo_fast_forget_packed(ctypes.c_int64(number))

    while True:  # no lock: another thread may number the same storage, and a forked child has no such thread
        known = _storages.get(key) or _storages.setdefault(key, (weakref.ref(storage, forget), number))
        if known[0]() is storage:
            return known[1]
        _storages.pop(key, None)


_python_ops = torch.library.Library("elmo_fast_python", "DEF")
_python_ops.define("watch_storage(Tensor tensor) -> int")
_python_ops.impl("watch_storage", lambda tensor: number_of(tensor.untyped_storage()), "CompositeExplicitAutograd")
_library.elmo_fast_hear_of_deaths()


def _text(found: bytes | None) -> str:
    if found is None:
        raise ValueError(_library.elmo_fast_error().decode())
    return found.decode()


def isa() -> str:
    """The instruction set that products use."""
    return _text(_library.elmo_fast_isa())


def isas() -> list[str]:
    """Those that this CPU has, oldest first."""
    return _text(_library.elmo_fast_isas()).split()


def limit_isa(name: str) -> None:
    """For tests: products use this one; "" takes the newest again."""
    _text(_library.elmo_fast_limit_isa(name.encode()))


def packed_count() -> int:
    """How many packed copies of parameters are kept."""
    return int(_library.elmo_fast_packed_count())


def packed_bytes() -> int:
    """Their size, in bytes."""
    return int(_library.elmo_fast_packed_bytes())


def clear_packed() -> None:
    """Drops all packed copies."""
    _library.elmo_fast_clear_packed()


def idle_buffer_bytes() -> int:
    """Memory of dead tensors that is kept for the next ones, in bytes."""
    return int(_library.elmo_fast_idle_buffer_bytes())


def clear_idle_buffers() -> None:
    """Gives that memory back to the system."""
    _library.elmo_fast_clear_idle_buffers()
