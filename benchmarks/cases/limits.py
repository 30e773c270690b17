"""What one core of this machine can do at most: the rates that bound every other case.

A float32 product is bound by "float32 products", a layer whose weights are streamed once per step by "reading": what
fits into the last-level cache is read faster than what comes from memory. An LSTM of the original size reads 42 MB per
direction and step in float32, 21 MB in bfloat16.
"""

import torch

from benchmarks.cases import Settings
from benchmarks.results import Report, measure
from benchmarks.timing import rate


def run(settings: Settings) -> Report:
    """Rows "GFLOP/s" of torch's own matrix product and "GB/s" of its sum, over one layer-direction and over many."""
    torch.set_num_threads(1)
    side, sizes = (512, (4, 8)) if settings.quick else (2048, (21, 42, 168, 672))
    report = Report(notes={"products": f"torch.mm, {side} x {side} x {side}", "reading": "torch.sum of float32"})
    rounds = 3 if settings.quick else 15
    a, b = torch.randn(side, side), torch.randn(side, side)
    product = {"torch.mm": rate(2 * side**3 / 1e9, lambda: a @ b)}
    report.rows += measure("float32 products", product, rounds, unit="GFLOP/s")
    for size in sizes:
        data = torch.zeros(size * 250_000)
        report.rows += measure(
            f"reading {size} MB", {"torch.sum": rate(data.nbytes / 1e9, data.sum)}, rounds, unit="GB/s"
        )
    return report
