"""`elmo-fast check` and `elmo-fast info`: whether every kernel is right on this machine, and which run here."""

import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli import _common
from elmo_fast.cli._parser import Computing, ModelNames, Running

DRIVER = pathlib.Path("/proc/driver/nvidia/version")
CPUINFO = pathlib.Path("/proc/cpuinfo")  # Linux only; torch's name of the CPU is printed everywhere
LIBRARIES = ("torch", "triton", "numpy", "safetensors", "h5py", "tqdm", "jsonargparse")
LIMIT = 300  # seconds of a check's process
Check = tuple[str, str, str]  # an op or one of `_gpu_paths`, a backend, and a precision


class _CheckOptions(Running):
    device: str = "cuda"


def run_check(options: _CheckOptions) -> int:
    """Compare every kernel with its definition in plain torch and float64, forward and backward, on small inputs.

    On a GPU also dropout, training steps and embedding from CUDA graphs, and a second GPU if there is one. Prints one
    line per check, and exits with status 1 if a result is wrong. Takes about a minute on a GPU, most of it to compile.
    Run it once for each GPU, driver, torch and Triton.
    """
    from elmo_fast.cli._gpu_paths import PATHS
    from elmo_fast.ops.cases import CASES

    def report_check(check: Check, result: str) -> None:
        name, backend, precision = check
        precision = precision if name in PATHS or CASES[name][1] else ""
        print(f"{name:<22}{backend:<9}{precision:<15}{result}", flush=True)

    device = _common.set_up(options)
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
    """List the checks for the device, and the reasons of those that cannot run there."""
    import torch

    from elmo_fast.cli._gpu_paths import PATHS
    from elmo_fast.op_choices import PRECISIONS
    from elmo_fast.ops._dispatch import backends_of, made_for, unsupported
    from elmo_fast.ops._triton import INTERPRETED
    from elmo_fast.ops.cases import CASES

    checks, reasons = [], {}
    if device.type == "cuda":  # these take longest, so they begin first; one precision does, since ops have all
        why = INTERPRETED or unsupported("projected_lstm", "triton", device, torch.float32, "bfloat16")
        checks += [(name, "triton", "float32" if why else "bfloat16") for name in PATHS]
        if torch.cuda.device_count() < 2:
            reasons[checks.pop()] = "torch sees one GPU"
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

    On a GPU most of the time is compilation, so several processes check, each in a new one: an illegal address ends the
    use of the GPU by the process that met it, and no other kernel is to blame.
    """
    if device.type == "cpu":
        yield from ((check, why_wrong(*check, device)) for check in checks)
        return
    pool = ThreadPoolExecutor(max(1, min(12, len(os.sched_getaffinity(0)) - 1)))
    try:
        tasks = {pool.submit(why_wrong_in_process, check, str(device)): check for check in checks}
        yield from ((tasks[task], task.result()) for task in as_completed(tasks))
    finally:
        pool.shutdown(cancel_futures=True)


def why_wrong_in_process(check: Check, device: str) -> str | None:
    """Run a check in a process of its own, which may die or hang."""
    # Python does not shut down: a thread of autograd that wakes up meanwhile would abort a process that has answered.
    program = (
        "import json, os, sys; from elmo_fast.cli import check; "
        "print(json.dumps(check.why_wrong(*sys.argv[1:])), flush=True); os._exit(0)"
    )
    command = [sys.executable, "-P", "-c", program, *check, device]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {LIMIT} s"
    if done.returncode:
        return f"ended by signal {-done.returncode}" if done.returncode < 0 else f"ended with status {done.returncode}"
    why: str | None = json.loads(done.stdout.splitlines()[-1])
    return why


def why_wrong(name: str, backend: str, precision: str, device: Any) -> str | None:
    """Run a check; return why it is wrong, or None. A failed capture is wrong too, although a run does without."""
    import torch

    from elmo_fast.cli._gpu_paths import PATHS
    from elmo_fast.errors import PerformanceWarning
    from elmo_fast.ops import cases

    device, number = torch.device(device), None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "running without a CUDA graph", PerformanceWarning)
            if name in PATHS:
                return PATHS[name](precision, device)
            for number, case in enumerate(cases.CASES[name][0](cases.Draw())):
                if (why := cases.why_wrong(case, backend, precision, device)) is not None:
                    return f"case {number}: {why}"
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises is what is wrong with it)
        where = "" if number is None else f"case {number}: "
        return f"{where}{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def remind(device: Any) -> None:
    """Warn if the device is a GPU on which not all kernels are known to be right."""
    import torch

    device = torch.device(device)
    if device.type == "cuda" and torch.cuda.is_available() and not mark_of(device).is_file():
        gpu = torch.cuda.get_device_properties(device).name
        advice = f"`elmo-fast check --device {device}` takes about a minute"
        warnings.warn(f"kernels are unchecked on this {gpu}: {advice}", stacklevel=2)


def remember(device: Any, *, passed: bool) -> None:
    """Store that the check passed on this GPU with these versions, or remove that."""
    mark = mark_of(device)
    mark.parent.mkdir(parents=True, exist_ok=True)
    if passed:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def mark_of(device: Any) -> pathlib.Path:
    """Return the file that exists if the check passed: in $XDG_CACHE_HOME/elmo_fast/gpu, by default in ~/.cache.

    Its name is a digest of all that results depend on besides arguments: the GPU, its driver, libraries, sources.
    """
    import torch

    from elmo_fast.ops import _native

    gpu, driver = torch.cuda.get_device_properties(device), DRIVER.read_bytes() if DRIVER.is_file() else b"unknown"
    about = gpu.name, gpu.major, gpu.minor, driver, torch.__version__, torch.version.cuda, _common.version_of("triton")
    digest = hashlib.sha256(repr(about).encode())
    compiled = [] if _native.C is None else [pathlib.Path(str(_native.C.__file__))]
    for file in [*sorted(pathlib.Path(_native.__file__).parent.rglob("*.py")), *compiled]:
        digest.update(file.read_bytes())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache) / "elmo_fast" / "gpu" / digest.hexdigest()[:24]


class _InfoOptions(Computing, ModelNames):
    pass


def run_info(options: _InfoOptions) -> None:
    """Show versions, the CPU, and which kernels run here and why not the others.

    With --model, or --options_file and --weight_file, reads and checks a model and describes it instead.
    """
    device = _common.set_up(options)
    if not _common.names_model(options):
        print("\n".join([*machine(), *precisions(), "", *backends(device)]))
        return
    from elmo_fast.checkpoints import format_of
    from elmo_fast.pretrain.model_card import described_model

    _common.resolve_model(options)
    rows = described_model(*_common.load_state(options))
    for name, value in {"format": format_of(options.model or str(options.weight_file)), **rows}.items():
        print(f"{name}: {value}")


def machine() -> list[str]:
    """Return the versions, the CPU, the GPUs, and what the extension has."""
    import torch

    from elmo_fast.errors import reinstall_command
    from elmo_fast.ops import _native, _sources

    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.is_file() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    cpu = f"torch: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    gpus = [f"GPU {i}: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    extension = [f"C++ extension: no: {_native.WHY_NOT}"]
    if _native.C is not None:
        extension = [f"C++ extension: {_native.C.__file__}"]
    if (why := _sources.why_stale(pathlib.Path(__file__).parents[2])) is not None:
        extension.append(f"{why}; rebuild it: {reinstall_command()}")
    return [
        f"elmo-fast {__version__} | Python {platform.python_version()} | {platform.platform()}",
        " | ".join(f"{name} {_common.version_of(name)}" for name in LIBRARIES),
        f"CPU: {model[1] if model else platform.machine()} | {cpu}",
        *(gpus or ["GPU: torch sees none"]),
        *extension,
    ]


def precisions() -> list[str]:
    """Return what runs each precision's matrix products on this CPU."""
    from elmo_fast.op_choices import INFERENCE_PRECISIONS
    from elmo_fast.ops import _native
    from elmo_fast.ops._native import products_on_cpu

    used = f" (instruction set {_native.C.isa()})" if _native.C is not None else ""
    return [
        f"matrix products on the CPU{used}:",
        *(f"  {name}: {products_on_cpu(name)}" for name in INFERENCE_PRECISIONS),
    ]


def backends(device: Any) -> list[str]:
    """Return a line per op: the backend it chooses, and the refusals of preferred backends for this device.

    A missing extension is reported once, above the ops.
    """
    import torch

    # Importing an op registers it.
    import elmo_fast.static.glove  # noqa: F401
    from elmo_fast.errors import ElmoFastError
    from elmo_fast.ops import PRECISIONS, _native, explain, op_names
    from elmo_fast.ops._dispatch import made_for

    remind(device)
    lines = [f"ops on {device}:"]
    width = max(map(len, op_names()), default=0)
    for op in op_names():
        chosen: dict[str, list[str]] = {}
        for precision in PRECISIONS:
            try:
                choice = explain(op, device, torch.float32, precision)
                refusals = [(name, reason) for name, reason in choice.refusals.items() if made_for(name, device)]
                why = "; ".join(
                    f"not {name}: {'no C++ extension' if reason == _native.WHY_NOT else reason}"
                    for name, reason in refusals
                )
                if not why and choice.backend == "reference" and device.type == "cpu":
                    why = "plain torch is as fast here"
                chosen.setdefault(choice.backend + (f" ({why})" if why else ""), []).append(precision)
            except ElmoFastError as error:
                chosen.setdefault(f"none: {error}", []).append(precision)
        for text, served in chosen.items():
            scope = "" if len(served) == len(PRECISIONS) else f" [{', '.join(served)}]"
            lines.append(f"  {op:<{width}}  {text}{scope}")
    return lines
