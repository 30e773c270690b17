"""How long kernels would take on GPUs that nobody has measured: PREDICTIONS, from what the emulator of PTX has counted.

`python -m benchmarks.gpu.predict` prints the table of docs/gpu.md. counted.json holds what each launch moves and
multiplies at production shapes (`python -m tests.ptx.production` writes it); a launch takes as long as the unit that it
keeps busy longest, at that unit's peak, and LAUNCH. Waits within a kernel are not counted, so real times are longer.
"""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks import results

COUNTED, OF_EAGER = (pathlib.Path(__file__).with_name(f"{name}.json") for name in ("counted", "counted_eager"))
Launches = list[dict[str, Any]]


class Gpu(NamedTuple):
    """What its vendor states. Rates are bytes or operations a second, without sparsity."""

    name: str
    multiprocessors: int
    clock: float
    memory: float
    l2: float
    """bytes that it holds"""
    products: float
    """of 16-bit operands, added in float32"""
    source: str


GPUS = (
    Gpu("H100 SXM", 132, 1.83e9, 3.35e12, 50e6, 989.4e12, "NVIDIA's H100 data sheet and architecture white paper"),
    Gpu("H200 SXM", 132, 1.83e9, 4.8e12, 50e6, 989.4e12, "NVIDIA's H200 data sheet; multiprocessors and L2 as H100"),
    Gpu("A100 SXM", 108, 1.41e9, 2.039e12, 40e6, 312e12, "NVIDIA's A100 80GB data sheet and architecture white paper"),
    Gpu("RTX 4090", 128, 2.52e9, 1.008e12, 72e6, 165.2e12, "NVIDIA's Ada architecture white paper"),
)
SHARED = 128  # bytes of shared memory a clock and multiprocessor: 32 banks of 4 (CUDA C++ Programming Guide)
L2 = 5120  # bytes a clock from the L2, as NVIDIA states for A100; ASSUMED for the others, whose vendor states none
LAUNCH = 1e-6  # ASSUMED: the start and the end of a kernel that waits for the one before it, in a CUDA graph
HOST = 18e-6  # ASSUMED: the host's time for a launch that no CUDA graph replays
# Of a CUDA graph of empty kernels, and for each of them, as others measured it on a laptop's RTX 5070 Ti under WSL2
# until the GPU was done, so the host's share is less: https://github.com/ahrefs/ocannl/issues/488
GRAPH, NODE = 15e-6, 0.58e-6
PRECISION = "float16"  # of what is counted
OF_TORCH, BESIDE = 128, 15  # torch's launches in a step, and beside a replay: tests/fake_cuda/test_steps.py counts them


def times(row: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """Seconds for which one launch keeps each unit busy. Multiprocessors with one block more than others end last."""
    blocks = row.get("blocks", gpu.multiprocessors)
    uneven = math.ceil(blocks / gpu.multiprocessors) * gpu.multiprocessors / blocks
    # What a launch that comes again reads again is still in the L2, as far as it fits.
    again = "l2" in row and row.get("again", row["launches"] > 1)
    fetched = max(0, row["distinct"] - gpu.l2) if again else row["distinct"]
    return {
        "memory": fetched / gpu.memory,
        "L2": row.get("l2", 0) / (L2 * gpu.clock),
        "shared memory": uneven * row.get("shared", 0) / (SHARED * gpu.clock * gpu.multiprocessors),
        "tensor cores": uneven * 2 * row["multiplications"] / gpu.products,
    }


def seconds(rows: Launches, gpu: Gpu) -> float:
    """Of all launches, one after the other."""
    return sum(row["launches"] * (LAUNCH + max(times(row, gpu).values())) for row in rows)


def bound(rows: Launches, gpu: Gpu) -> str:
    """The unit that bounds most of the time, or the launches."""
    shares = dict.fromkeys(("launches", *times(rows[0], gpu)), 0.0)
    for row in rows:
        units = times(row, gpu)
        shares["launches"] += row["launches"] * LAUNCH
        shares[max(units, key=units.__getitem__)] += row["launches"] * max(units.values())
    return max(shares, key=shares.__getitem__)


def number(rows: Launches) -> int:
    """How many launches there are."""
    return sum(row["launches"] for row in rows)


def step_of(rows: Launches) -> Launches:
    """The kernels of one step of an LSTM's forward scan, both directions."""
    return [row | {"launches": row["launches"] // 20, "again": True} for row in rows if row["launches"] % 20 == 0]


def works(counted: dict[str, Launches]) -> dict[str, Launches]:
    """The rows of the table, each with its launches."""
    layer, words = counted["an LSTM layer, 128 rows, 20 steps"], 2 * counted["sampled_softmax, 2560 rows, 8192 samples"]
    once = [row for name in counted if name.startswith(("char_cnn", "highway", "adagrad")) for row in counted[name]]
    return counted | {"training step, 128 x 20, two layers": [*2 * layer, *words, *once]}


def replayed(launches: int) -> float:
    """At most, the host's seconds for a training step that is one CUDA graph, of so many launches of ours."""
    return GRAPH + NODE * (launches + OF_TORCH) + HOST * BESIDE


def read(path: pathlib.Path) -> dict[str, Launches]:
    """`works` of the launches that a file has."""
    return works(json.loads(path.read_text(encoding="utf-8")))


def slower() -> list[str]:
    """The works that are predicted to take longer than in eager torch, each with the GPUs where they do."""
    ours, eagers = read(COUNTED), read(OF_EAGER)
    where = {name: [g.name for g in GPUS if seconds(ours[name], g) > seconds(eagers[name], g)] for name in ours}
    return [f"{name} ({', '.join(gpus)})" for name, gpus in where.items() if gpus]


def write(path: pathlib.Path, counted: Mapping[str, Launches]) -> None:
    """A file as `read` takes it, a launch a line."""
    rows = {name: ",\n".join(f"  {json.dumps(row)}" for row in found) for name, found in counted.items()}
    lines = (f" {json.dumps(name)}: [\n{each}\n ]" for name, each in rows.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def table() -> str:
    """The predictions as Markdown."""
    ours, eagers = read(COUNTED), read(OF_EAGER)
    lines = [["predicted, not measured", "launches", *(gpu.name for gpu in GPUS), f"bound on {GPUS[0].name} by"]]

    def add(name: str, rows: Launches, unit: str, bound_by: str) -> None:
        figures = [
            f"{seconds(rows, gpu) * {'ms': 1e3, 'us': 1e6}[unit]:.{2 if unit == 'ms' else 1}f} {unit}" for gpu in GPUS
        ]
        lines.append([name, str(number(rows)), *figures, bound_by])

    for name, rows in ours.items():
        add(name, rows, "ms", bound(rows, GPUS[0]))
        add("eager torch, the same", eagers[name], "ms", bound(eagers[name], GPUS[0]))
        if name.startswith("forward"):
            add(f"our step, both directions ({name.split(', ')[1]})", step_of(rows), "us", "")
    launches = number(rows)
    for how, each in {"launch by launch": HOST * launches, "as one CUDA graph, at most": replayed(launches)}.items():
        lines.append(
            [
                f"the host's time for our training step, {how}",
                str(launches),
                *[f"{1e3 * each:.2f} ms"] * len(GPUS),
                "the host",
            ]
        )
    sources = "; ".join(f"{gpu.name}: {gpu.source}" for gpu in GPUS)
    longer = "Predicted to take longer than eager torch: " + ("; ".join(slower()) or "nothing") + "."
    reproduce = "Reproduce: `python -m benchmarks.gpu.predict`."
    return "\n".join([*results.table("lrrrrrl", *lines), "", f"{longer} Peaks: {sources}. {reproduce}"])


def main() -> None:
    """Prints the table."""
    print(table())


if __name__ == "__main__":
    main()
