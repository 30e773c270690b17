"""How much memory this process uses, and how much more it can have. Needs no torch."""

import pathlib
import re
from collections.abc import Iterator

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def available(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Bytes that this process can still allocate: the minimum that the machine, ulimit and control groups leave.

    root: where /proc and /sys are. None if unknown, as on systems other than Linux.
    """
    left = [*_machine(root), *_limits(root), *_control_groups(root)]
    return max(0, min(left)) if left else None


def _kilobytes(path: pathlib.Path) -> dict[str, int]:
    """The lines "Name:  12 kB" of a file of /proc, in bytes; empty if there is no such file."""
    try:
        found = re.findall(r"^(\w+):\s+(\d+) kB$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return {}
    return {name: int(number) * 1024 for name, number in found}


def _machine(root: pathlib.Path) -> Iterator[int]:
    told = _kilobytes(root / "proc/meminfo")
    if "MemAvailable" in told:
        yield told["MemAvailable"]


def _limits(root: pathlib.Path) -> Iterator[int]:
    """What ulimit -v and ulimit -d leave."""
    used = _kilobytes(root / "proc/self/status")
    if resource is None:
        return
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and name in used:
            yield most - used[name]


def _control_groups(root: pathlib.Path) -> Iterator[int]:
    """What each control group of this process and its parents leave, in version 1 and 2."""
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


def resident() -> int | None:
    """Bytes of resident memory of this process; None if unknown."""
    return _kilobytes(pathlib.Path("/proc/self/status")).get("VmRSS")
