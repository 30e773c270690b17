"""`elmo-fast info`: versions, the CPU, and for every op which backend runs here and why not the others."""

import pathlib
import platform
import re
from dataclasses import dataclass
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli import _common, check
from elmo_fast.cli._parser import Computing, ModelNames

CPUINFO = pathlib.Path("/proc/cpuinfo")  # Linux only; torch's name of the CPU is printed everywhere
LIBRARIES = ("torch", "triton", "numpy", "safetensors", "h5py", "tqdm", "jsonargparse")


@dataclass(kw_only=True)
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
    for name, value in {"format": format_of(options.weights), **rows}.items():
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

    unchecked = check.reminder(device)
    lines = [f"ops on {device}:", *([unchecked] if unchecked else [])]
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
