"""`elmo-fast tune`: measures this GPU, keeps the fastest choices for it, and compares with what others would run."""

import datetime
import os
import platform
import sys
import time
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli import _common, _progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Precision

DESCRIPTION = (
    "Measures on this GPU which settings are fastest: the algorithm of the LSTM by batch size, the tiles of kernels, "
    "CUDA graphs or launches, distinct words or all. Kernels that this GPU has not run before are checked first, and "
    "left out if they fail. The fastest settings are stored in ~/.cache/elmo_fast/gpu (or under $XDG_CACHE_HOME); "
    "later processes on this GPU use them until the driver, torch, Triton or this package changes. Also prints the "
    "speed of cuDNN, eager torch and torch.compile. No GPU has run this yet: please send the authors the file of "
    "--output."
)


def build_parser() -> Any:
    parser = _common.new_parser("tune", DESCRIPTION)
    parser.set_defaults(device="cuda")
    parser.shared("precision", type=Precision, default="float16")
    parser.option("dim", int, "cells per LSTM layer and direction", 4096)
    parser.option("projection_dim", int, "output width of an LSTM layer per direction", 512)
    parser.shared("batch_size", default=32, help="sentences per batch")
    parser.option("length", int, "words per sentence", 20)
    parser.option("rounds", int, "how often each side is timed; the median is used", 20)
    parser.output("output", "JSON file to write the figures to", default="gpu_tune.json")
    return parser


def run(arguments: Any) -> int:
    refuse_without_gpu(arguments.device)
    device = _common.set_up(arguments)
    from elmo_fast.errors import check_counts
    from elmo_fast.files import write_json
    from elmo_fast.pretrain.config import ModelConfig
    from elmo_fast.tuning import tune

    counts = _common.named(arguments, "dim", "projection_dim", "batch_size", "length", "rounds")
    check_counts(**counts)
    model = ModelConfig(dim=arguments.dim, projection_dim=arguments.projection_dim, dropout=0.0)
    start = time.monotonic()
    with _progress.progress_bar(arguments, unit="measurements") as progress:
        sizes = {"batch": arguments.batch_size, "length": arguments.length, "rounds": arguments.rounds}
        found = tune(device, arguments.precision, model, progress=progress.reach, **sizes)
    for line in lines_of(found):
        print(line)
    write_json(arguments.output, {**about(device, time.monotonic() - start), **content_of(found)})
    _common.logger().info("wrote %s; please send it to the authors of elmo_fast", arguments.output)
    return 0


def refuse_without_gpu(device: str) -> None:
    """Raises ElmoFastError where there is no GPU to measure."""
    import torch

    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise ElmoFastError(
            f"--device must be a CUDA GPU, which is what this command measures; got {device!r}, and this torch sees "
            f"{torch.cuda.device_count()} GPUs"
        )


def lines_of(found: Any) -> list[str]:
    """Each comparison with its sides, then the choices and what was left out."""
    lines, variant = [], None
    for row in found.rows:
        if row["variant"] != variant:
            variant = row["variant"]
            lines += ["", variant]
        beside = f"   {row['ratio']:g} x {row['against']}" if "ratio" in row else ""
        lines.append(f"  {row['side']:<32} {row['median']:>10g} {row['unit']}{beside}")
    lines += ["", "kept for this GPU:", *(f"  {name}: {value}" for name, value in found.choices.items())]
    return [*lines, *(f"left out: {each}" for each in found.skipped)]


def about(device: Any, seconds: float) -> dict[str, Any]:
    """On what was measured, when, as benchmarks/table.py reads it."""
    from elmo_fast.ops import _card

    card, date = _card.identity(device), datetime.datetime.now(datetime.UTC)
    return {
        "case": "gpu_tune",
        "date": date.strftime("%Y-%m-%d %H:%M UTC"),
        "commit": f"{__version__}, kernels {card['kernels']}",
        "command": f"elmo-fast {' '.join(sys.argv[1:])}",
        "machine": {"cpu": platform.processor() or platform.machine(), "flags": [], "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), **{name: card[name] for name in ("torch", "triton")}},
        "gpu": card,
        "run": f"{date.timestamp():.0f}",
        "quick": False,
        "rehearsal": False,
        "complete": True,
        "seconds": round(seconds, 1),
    }


def content_of(found: Any) -> dict[str, Any]:
    """What was found, as benchmarks/table.py reads it."""
    return {"notes": {"choices": found.choices}, "skipped": found.skipped, "rows": found.rows}
