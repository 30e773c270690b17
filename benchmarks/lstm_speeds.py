"""How many times as fast as float32 the LSTMs of the original size run, with each instruction set of this CPU.

`python -m benchmarks.lstm_speeds` prints the rows of the table in elmo_fast/ops/_cpu_products.py. Processor time on one
thread, the least of several turns; all precisions take turns, so that a change of the clock meets each.
"""

import time

import torch

from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.ops import LSTMWeights, _native, projected_lstm

TURNS = 3
SHAPES = ((32, 6), (1, 10))  # sentences, tokens of each
CELLS, WIDTH = 4096, 512


def main() -> None:
    torch.set_num_threads(1)
    weights = [[_weights() for _ in range(2)] for _ in range(2)]
    for isa in _native.C.isas():  # type: ignore[union-attr]
        _native.C.limit_isa(isa)  # type: ignore[union-attr]
        seconds = [_least(weights, torch.randn(batch, length, WIDTH)) for batch, length in SHAPES]
        ratios = {p: [each["float32"] / each[p] for each in seconds] for p in INFERENCE_PRECISIONS[1:]}
        speeds = (f'"{p}": Speed({many:.2g}, {one:.2g})' for p, (many, one) in ratios.items())
        rates = " ".join(
            f"{batch * length / each[p]:.0f}"
            for (batch, length), each in zip(SHAPES, seconds, strict=True)
            for p in each
        )
        print(f'    "{isa}": speeds={{{", ".join(speeds)}}},  # tokens/s: {rates}', flush=True)


def _weights() -> LSTMWeights:
    sizes = ((4 * CELLS, WIDTH), (4 * CELLS, WIDTH), (4 * CELLS,), (WIDTH, CELLS))
    return LSTMWeights(*(torch.randn(*size) * 0.02 for size in sizes))


def _run(weights: list[list[LSTMWeights]], x: torch.Tensor, precision: str) -> None:
    lengths, inputs = torch.full((x.shape[0],), x.shape[1]), [x, x]
    for i, layer in enumerate(weights):
        inputs = list(
            projected_lstm(
                inputs, layer, lengths, reverse=[False, True], cell_clip=3.0, projection_clip=3.0, residual=i > 0,
                precision=precision, backend="native",
            )[0]
        )  # fmt: skip


def _least(weights: list[list[LSTMWeights]], x: torch.Tensor) -> dict[str, float]:
    """Seconds of each precision."""
    least = dict.fromkeys(INFERENCE_PRECISIONS, float("inf"))
    with torch.no_grad():
        for turn in range(TURNS + 1):  # the first packs the weights
            for precision in least:
                start = time.process_time()
                _run(weights, x, precision)
                if turn:
                    least[precision] = min(least[precision], time.process_time() - start)
    return least


if __name__ == "__main__":
    main()
