"""`elmo-fast check`: compares every kernel with its reference, and remembers the GPUs on which all are right."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from elmo_fast.cli import _common

DESCRIPTION = (
    "Compares every kernel with its definition in plain torch and float64, forward and backward, on small inputs. "
    "Prints one line per op, backend and precision, and exits with status 1 if a result is wrong. Takes about a minute "
    "on a GPU, most of it to compile. Run it once for each GPU, driver, torch and Triton."
)
DRIVER = pathlib.Path("/proc/driver/nvidia/version")


class Line(NamedTuple):
    """The result for one op, backend and precision."""

    name: str
    right: bool | None
    """None if the backend cannot run here"""
    why: str | None


def build_parser() -> Any:
    parser = _common.new_parser("check", DESCRIPTION, shared=("threads",))
    parser.shared("device", default="cuda")
    return parser


def run(arguments: Any) -> int:
    """Check all ops; 1 if one is wrong, or none can run."""
    device = _common.set_up(arguments)
    right = wrong = 0
    for line in lines(device):
        right, wrong = right + (line.right is True), wrong + (line.right is False)
        state = {True: "right", False: f"WRONG: {line.why}", None: f"cannot run: {line.why}"}[line.right]
        print(f"{line.name:<46}{state}", flush=True)
    print(f"{right} right, {wrong} wrong on {device}")
    passed = right > 0 and wrong == 0
    if device.type == "cuda":
        remember(device, passed=passed)
    return 0 if passed else 1


def lines(device: Any) -> Iterator[Line]:
    """Check each op that has a kernel for the device, at each precision."""
    import torch

    from elmo_fast.op_choices import PRECISIONS
    from elmo_fast.ops._dispatch import backends_of, made_for
    from elmo_fast.ops.cases import CASES

    for op, (_, multiplies) in CASES.items():
        for backend, implementation in backends_of(op).items():
            for precision in PRECISIONS if multiplies else ("float32",):
                name = f"{op:<22}{backend:<9}{precision if multiplies else ''}"
                why = implementation.unsupported(device, torch.float32, precision)
                if backend == "reference" or (why is not None and not made_for(backend, device)):
                    continue
                if why is not None:
                    yield Line(name, None, why)
                    continue
                why, lost = why_wrong(op, backend, precision, device)
                yield Line(name, why is None, why)
                if lost:
                    yield Line("all that follow", None, "the error above ended this process's use of the GPU")
                    return


def why_wrong(op: str, backend: str, precision: str, device: Any) -> tuple[str | None, bool]:
    """Run all cases of an op: why one is wrong, or None; and whether an error has ended the use of the device."""
    import torch

    from elmo_fast.ops import cases

    for number, case in enumerate(cases.CASES[op][0](cases.Draw())):
        try:
            why = cases.why_wrong(case, backend, precision, device)
        except Exception as error:  # noqa: BLE001 (whatever a kernel raises is what is wrong with it)
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            try:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
            except RuntimeError:  # an illegal address, for example
                return f"case {number}: {why}", True
        if why is not None:
            return f"case {number}: {why}", False
    return None, False


def reminder(device: Any) -> str | None:
    """One sentence if the device is a GPU on which not all kernels are known to be right, else None."""
    import torch

    device = torch.device(device)
    if device.type != "cuda" or not torch.cuda.is_available() or mark_of(device).is_file():
        return None
    gpu = identity(device)["gpu"]
    return f"gpu    kernels are unchecked on this {gpu}: `elmo-fast check --device {device}` takes about a minute"


def remind(device: Any) -> None:
    """Log the reminder, if there is one."""
    if (sentence := reminder(device)) is not None:
        _common.logger().warning(sentence)


def remember(device: Any, *, passed: bool) -> None:
    """Store that the check passed on this GPU with these versions, or remove that."""
    from elmo_fast.files import write_json

    mark = mark_of(device)
    if not passed:
        mark.unlink(missing_ok=True)
        return
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_json(mark, identity(device))


def mark_of(device: Any) -> pathlib.Path:
    """Return the file that exists if the check passed: in $XDG_CACHE_HOME/elmo_fast/gpu, by default in ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(json.dumps(identity(device), sort_keys=True).encode()).hexdigest()
    return pathlib.Path(cache) / "elmo_fast" / "gpu" / f"{digest[:24]}.json"


def identity(device: Any) -> dict[str, str]:
    """All that results depend on besides arguments: the GPU, its driver, libraries, the sources of the ops."""
    import torch

    from elmo_fast.ops import _native

    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "absent"
    try:
        driver = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER.read_text(encoding="utf-8"))
    except OSError:
        driver = None
    ops, sources = pathlib.Path(_native.__file__).parent, hashlib.sha256()
    compiled = [] if _native.C is None else [pathlib.Path(str(_native.C.PATH))]
    for file in [*sorted(ops.rglob("*.py")), *compiled]:
        sources.update(file.read_bytes())
    found = torch.cuda.get_device_properties(device)
    return {
        "gpu": found.name,
        "capability": f"{found.major}.{found.minor}",
        "driver": driver[0] if driver else "unknown",
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton,
        "sources": sources.hexdigest()[:16],
    }
