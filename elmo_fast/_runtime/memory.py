"""How much memory this process uses and the machine has left, and one clear error when memory runs short.

Needs no torch.
"""

import ctypes
import errno
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ShortageError

if TYPE_CHECKING:
    from torch import Tensor

# How libraries report a shortage when they raise no MemoryError.
_MESSAGE = re.compile(
    r"allocate memory|not enough memory|out of memory|bad_alloc|unable to (allocate|mmap)|memory allocation failed|"
    r"failed to map segment|can't start new thread|alloc_failed",
    re.IGNORECASE,
)
# Options of commands that need less memory when lowered.
_LESS = "batch_size", "max_tokens", "unroll_steps", "n_negative_samples_batch", "processes", "threads", "max_vocab_size"
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits: 12 bytes, 3.4 KiB, 5.6 GiB."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{int(number)} bytes"


def available() -> int | None:
    """Bytes of memory that the machine has left; None if unknown, as on systems other than Linux."""
    return _kilobytes("/proc/meminfo").get("MemAvailable")


def resident(*, peak: bool = False) -> int | None:
    """Bytes of resident memory of this process, now or at their peak; None if unknown."""
    return _kilobytes("/proc/self/status").get("VmHWM" if peak else "VmRSS")


def _kilobytes(path: str) -> dict[str, int]:
    """Return the lines "Name:  12 kB" of a file of /proc, in bytes; empty if there is no such file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(number) * 1024 for name, number in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that memory ran out."""
    while error is not None:
        if isinstance(error, MemoryError | ShortageError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(error, RuntimeError | ImportError | OSError) and _MESSAGE.search(str(error)):
            return True
        error = error.__cause__
    return False


def shortage_error(error: BaseException, options: Mapping[str, Any]) -> ShortageError:
    """Return the shortage as one sentence: the library's own, and the options of the command to lower."""
    lower = " or ".join(f"--{name}" for name in _LESS if name in options)
    sentence = str(error).partition("\n")[0] or type(error).__name__
    return ShortageError(f"memory ran out: {sentence}; {f'lower {lower}, or ' if lower else ''}end other programs")


def bytes_of(tensor: "Tensor") -> memoryview:
    """Return the memory of a contiguous tensor on the CPU, which stays alive meanwhile.

    Unlike `.numpy()`, it does not mark the storage as shared for good: torch can still resize it, as FSDP does, and a
    frozen weight is still trusted not to be written by others.
    """
    array = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    array.tensor = tensor  # type: ignore[attr-defined]  # keeps it alive
    return memoryview(array).cast("B")
