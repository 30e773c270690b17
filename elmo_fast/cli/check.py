"""`elmo-fast check`: compares every kernel with its reference, and remembers the GPUs on which all are right."""

import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli._parser import Parser

DRIVER = pathlib.Path("/proc/driver/nvidia/version")
Check = tuple[str, str, str]  # an op, one of its backends, and a precision


def check_options(parser: Parser) -> None:
    parser.shared("threads")
    parser.shared("device", default="cuda")


def run_check(arguments: Any) -> int:
    """Compare every kernel with its definition in plain torch and float64, forward and backward, on small inputs.

    Prints one line per op, backend and precision, and exits with status 1 if a result is wrong. Takes about a minute
    on a GPU, most of it to compile. Run it once for each GPU, driver, torch and Triton.
    """
    from elmo_fast.ops.cases import CASES

    def report_check(check: Check, result: str) -> None:
        op, backend, precision = check
        print(f"{op:<22}{backend:<9}{precision if CASES[op][1] else '':<15}{result}", flush=True)

    device = _common.set_up(arguments)
    checks, reasons = checks_on(device)
    for check, reason in reasons.items():
        report_check(check, f"cannot run: {reason}")
    wrong = 0
    for check, why in results(checks, device):
        wrong += why is not None
        report_check(check, "right" if why is None else f"WRONG: {why}")
    print(f"{len(checks) - wrong} right, {wrong} wrong on {device}")
    passed = len(checks) > 0 and wrong == 0
    if device.type == "cuda":
        remember(device, passed=passed)
    return 0 if passed else 1


def checks_on(device: Any) -> tuple[list[Check], dict[Check, str]]:
    """List the kernels for the device, and the reasons of those that cannot run there."""
    import torch

    from elmo_fast.op_choices import PRECISIONS
    from elmo_fast.ops._dispatch import backends_of, made_for, unsupported
    from elmo_fast.ops.cases import CASES

    checks, reasons = [], {}
    for op, (_, multiplies) in CASES.items():
        for backend in backends_of(op):
            for precision in PRECISIONS if multiplies else ("float32",):
                why = unsupported(op, backend, device, torch.float32, precision)
                if backend != "reference" and why is None:
                    checks.append((op, backend, precision))
                elif backend != "reference" and made_for(backend, device):
                    reasons[op, backend, precision] = str(why)
    return checks, reasons


def results(checks: list[Check], device: Any) -> Iterator[tuple[Check, str | None]]:
    """Yield each check with the reason why it is wrong, or None.

    On a GPU most of the time is compilation, so several processes check, each op in a new one: an illegal address ends
    the use of the GPU by the process that met it, and no other kernel is to blame.
    """
    if device.type == "cpu":
        yield from ((check, why_wrong(*check, device)) for check in checks)
        return
    questions = [(check, str(device)) for check in checks]
    workers = max(1, min(len(checks), 12, len(os.sched_getaffinity(0)) - 1))
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(answer, questions)


def answer(question: tuple[Check, str]) -> tuple[Check, str | None]:
    """Run a check in a process of its own, on the device of this name."""
    check, device = question
    return check, why_wrong(*check, device)


def why_wrong(op: str, backend: str, precision: str, device: Any) -> str | None:
    """Run all cases of an op; return why one is wrong, or None."""
    import torch

    from elmo_fast.ops import cases

    for number, case in enumerate(cases.CASES[op][0](cases.Draw())):
        try:
            why = cases.why_wrong(case, backend, precision, torch.device(device))
        except Exception as error:  # noqa: BLE001 (whatever a kernel raises is what is wrong with it)
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if why is not None:
            return f"case {number}: {why}"
    return None


def reminder(device: Any) -> str | None:
    """One sentence if the device is a GPU on which not all kernels are known to be right, else None."""
    import torch

    device = torch.device(device)
    if device.type != "cuda" or not torch.cuda.is_available() or mark_of(device).is_file():
        return None
    gpu = identity(device)["gpu"]
    return f"kernels are unchecked on this {gpu}: `elmo-fast check --device {device}` takes about a minute"


def remind(device: Any) -> None:
    """Warn with the reminder, if there is one."""
    if (sentence := reminder(device)) is not None:
        warnings.warn(sentence, stacklevel=2)


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
    ops, sources = pathlib.Path(_native.__file__).parent, hashlib.sha256()
    compiled = [] if _native.C is None else [pathlib.Path(str(_native.C.__file__))]
    for file in [*sorted(ops.rglob("*.py")), *compiled]:
        sources.update(file.read_bytes())
    gpu = torch.cuda.get_device_properties(device)
    return {
        "gpu": gpu.name,
        "capability": f"{gpu.major}.{gpu.minor}",
        "driver": DRIVER.read_text(encoding="utf-8") if DRIVER.is_file() else "unknown",
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton,
        "sources": sources.hexdigest()[:16],
    }
