"""How much memory this process uses and can still have, and one clear error when memory runs short.

Needs no torch.
"""

import contextlib
import ctypes
import errno
import functools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from elmo_fast.errors import ShortageError

if TYPE_CHECKING:
    from torch import Tensor

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Place = TypeVar("Place", bound=str | os.PathLike[str])

# How libraries report a shortage when they raise no MemoryError.
_MESSAGE = re.compile(
    r"allocate memory|not enough memory|out of memory|bad_alloc|unable to (allocate|mmap)|memory allocation failed|"
    r"failed to map segment|can't start new thread|alloc_failed",
    re.IGNORECASE,
)
# How libraries name a GPU in such a message.
_GPU = re.compile("CUDA|CUBLAS|CUDNN|HIP")
# What a file's size explains: its bytes, read, converted and copied, plus some overhead.
_COPIES, _BESIDE = 4, 1 << 28
# Options of commands that change the memory needed when lowered or raised.
_LESS_ON_GPU = ("batch_size", "max_tokens", "unroll_steps", "n_negative_samples_batch")
_LESS = (*_LESS_ON_GPU, "processes", "threads", "max_vocab_size")
_MORE = ("micro_batches",)
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits: 12 bytes, 3.4 KiB, 5.6 GiB."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{int(number)} bytes"


def available(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Bytes that this process can still allocate: the minimum that the machine, ulimit and control groups leave.

    root: where /proc and /sys are. None if unknown, as on systems other than Linux.
    """
    machine = _kilobytes(root / "proc/meminfo")
    left = [*([machine["MemAvailable"]] if "MemAvailable" in machine else []), *_limits(root), *_control_groups(root)]
    return max(0, min(left)) if left else None


def _kilobytes(path: pathlib.Path) -> dict[str, int]:
    """Return the lines "Name:  12 kB" of a file of /proc, in bytes; empty if there is no such file."""
    try:
        lines = re.findall(r"^(\w+):\s+(\d+) kB$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return {}
    return {name: int(number) * 1024 for name, number in lines}


def _limits(root: pathlib.Path) -> Iterator[int]:
    """Yield what ulimit -v (VmSize) and ulimit -d (VmData) leave."""
    used = _kilobytes(root / "proc/self/status")
    if resource is None:
        return
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and name in used:
            yield most - used[name]


def _control_groups(root: pathlib.Path) -> Iterator[int]:
    """Yield what each control group of this process and its parents leave, in version 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            names = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # In a container the path may be the host's, of which only the root is visible.
        place = pathlib.PurePosixPath(path.lstrip("/"))
        for group in (place, *place.parents):
            yield from _left_of(root / names[0] / group, *names[1:])


def _left_of(group: pathlib.Path, most: str, used: str, given_back: str) -> Iterator[int]:
    """given_back: page cache that the kernel drops before it refuses memory."""
    try:
        limit, current = ((group / name).read_text(encoding="ascii").strip() for name in (most, used))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return
    if limit.isdecimal() and current.isdecimal():
        yield int(limit) - int(current) + int(statistics.get(given_back, 0))


def resident(*, peak: bool = False) -> int | None:
    """Bytes of resident memory of this process, now or at their peak; None if unknown."""
    return _kilobytes(pathlib.Path("/proc/self/status")).get("VmHWM" if peak else "VmRSS")


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
    """Return the shortage as one sentence that names the options to lower."""
    if (sentence := gpu_shortage(error)) is not None:
        return ShortageError(f"memory of a GPU ran out; {_gpu_advice(options, '--')}: {sentence}")
    match = re.search(r"allocate (\d+) bytes|allocate ([\d.]+ \w+) for", str(error))
    requested = ""
    if match is not None:
        amount = size(int(match[1])) if match[1] else match[2].replace(". ", " ")
        requested = f": {amount} more were requested"
    advice = [*_changes(options, _LESS, "--"), "end other programs"]
    return ShortageError(
        f"memory ran out{requested}{_left()}; {', '.join(advice)}, or allow more (ulimit -v, the container's limit)"
    )


def _changes(options: Mapping[str, Any], less: Sequence[str], dashes: str) -> list[str]:
    lower, higher = ([f"{dashes}{name}" for name in names if name in options] for names in (less, _MORE))
    return [f"lower {' or '.join(lower)}"] * bool(lower) + [f"raise {' or '.join(higher)}"] * bool(higher)


def gpu_shortage(error: BaseException | None) -> str | None:
    """Return the sentence in which an error, or its cause, says that memory of a GPU ran out; None if none does."""
    while error is not None:
        sentence = str(error).partition("\n")[0]
        if isinstance(error, RuntimeError | ShortageError) and _GPU.search(sentence) and _MESSAGE.search(sentence):
            return sentence
        error = error.__cause__
    return None


def _gpu_advice(options: Mapping[str, Any], dashes: str) -> str:
    """dashes: "--" for the options of a command, "" for arguments in Python."""
    advice = _changes(options, _LESS_ON_GPU, dashes)
    if options.get("precision") in ("float32", "tf32"):
        advice.append("give --precision bfloat16" if dashes else 'give precision="bfloat16"')
    on_cpu = f"compute on the CPU{' (--device cpu)' if dashes else ''}"
    return f"{', '.join([*advice, 'end other programs on the GPU'])}, or {on_cpu}"


@contextlib.contextmanager
def gpu_shortage_advised(**options: Any) -> Iterator[None]:
    """Add to an error of the block what to do if memory of a GPU ran out, below torch's own sentence.

    options: arguments of the caller's caller, by name.
    """
    try:
        yield
    except Exception as error:
        if gpu_shortage(error) is not None:
            error.add_note(f"memory of a GPU ran out; {_gpu_advice(options, '')}")
        raise


def _left() -> str:
    left = available()
    return "" if left is None else f" ({size(left)} are left to this process)"


def reader(
    function: Callable[Concatenate[Place, Parameters], Result],
) -> Callable[Concatenate[Place, Parameters], Result]:
    """Make a function that reads a file or folder raise ShortageError when memory runs out, in whatever form.

    A file that needs memory out of all proportion to its size is damaged; the function's own error then stands.
    """

    @functools.wraps(function)
    def reading(path: Place, /, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return function(path, *arguments, **named)
        except Exception as error:
            left = available()
            roomy = left is not None and left > _COPIES * stored_bytes(path) + _BESIDE
            if roomy or not is_shortage(error) or gpu_shortage(error) is not None:
                raise
            raise ShortageError(f"{path}: memory ran out while reading it{_left()}; the file may be intact") from error

    return reading


def stored_bytes(path: str | os.PathLike[str]) -> int:
    """Return the bytes of a file, or of all files of a folder, of which others may be removed meanwhile."""
    total = 0
    in_folder = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in [path] if os.path.isfile(path) else in_folder:
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(file).st_size
    return total


def bytes_of(tensor: "Tensor") -> memoryview:
    """Return the memory of a contiguous tensor on the CPU, which stays alive meanwhile.

    Unlike `.numpy()`, it does not mark the storage as shared for good: torch can still resize it, as FSDP does, and a
    frozen weight is still trusted not to be written by others.
    """
    array = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    array.tensor = tensor  # type: ignore[attr-defined]  # keeps it alive
    return memoryview(array).cast("B")
