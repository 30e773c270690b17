"""What kernels move and multiply at production shapes: of each different launch the emulator runs some blocks.

`python -m tests.ptx.production [WORK ...]` writes benchmarks/results/gpu_counts.json, the table of docs/gpu.md. A
launch of several blocks that comes again is counted, not run again. What no block has computed is zeros, which the
addresses of these kernels do not depend on. highway's gradients keep the scale of the one that arrives, as zeros do.
Products that torch computes are counted in `PRODUCT`.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch
import triton

from benchmarks import gpu_model
from benchmarks.op_calls import OpCalls
from elmo_fast import ops
from elmo_fast.ops import _triton
from tests.ptx import cuda
from tests.ptx.counts import SECTOR, Counts
from tests.ptx.global_memory import APART, GlobalMemory
from tests.ptx.lanes import WARP
from tests.ptx.launch import Launch, together
from tests.ptx.races import Intervals, Shadow

BLOCKS = 16  # of a launch, so many are run
WRITTEN = 1 << 43  # set in a sector's number where it is written
PRODUCT = "product by torch"


class AnyOrder(Intervals):
    """Finds no race: what is looked for here is how much, and other tests look for those."""

    def shadow(self, places: int) -> Shadow:
        return Unwatched(self)

    def synchronise(self, by: int, address: int, modifiers: tuple[str, ...]) -> None:
        pass


class Unwatched(Shadow):
    def __init__(self, order: Intervals):
        self.order = order

    def read(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        return np.zeros(1, bool)

    write = atomic = read


class CountsOfBlocks(Counts):
    """Also keeps which sectors each block has asked for, to tell what several share."""

    def __init__(self, blocks: int, warps: int):
        super().__init__()
        self.blocks, self.warps, self.asked = blocks, warps, []

    def read(self, addresses: np.ndarray, size: int, by: np.ndarray) -> None:
        super().read(addresses, size, by)
        self.keep(addresses, by, 0)

    def written(self, addresses: np.ndarray, size: int, by: np.ndarray) -> None:
        super().written(addresses, size, by)
        self.keep(addresses, by, WRITTEN)

    def keep(self, addresses: np.ndarray, by: np.ndarray, how: int) -> None:
        block, sector = by.astype(np.int64) // (self.warps + 1), (addresses // np.uint64(SECTOR)).astype(np.int64)
        self.asked.append(np.unique(block << 44 | how | sector))

    def distinct(self, memory: GlobalMemory, blocks: int) -> int:
        """Bytes that all `blocks` read or write, each counted once, as far as those that were run share them."""
        pairs = np.unique(np.concatenate(self.asked)) if self.asked else np.empty(0, np.int64)
        sector = pairs & ((1 << 44) - 1)
        several, total = self.blocks, 0.0
        for region, how in itertools.product(memory.regions, (0, WRITTEN)):
            here = sector // (APART // SECTOR) == (region.start // SECTOR | how) // (APART // SECTOR)
            asked, differ = np.count_nonzero(here), len(np.unique(sector[here]))
            most = len(region.bytes) / SECTOR if differ < asked or several == blocks else np.inf
            more = (differ - asked / several) / max(1, several - 1)
            total += min(asked / several + (blocks - 1) * more, most)
        return round(total * SECTOR)


def some_blocks(launch: Launch) -> dict[str, float]:
    """What the launch moves and multiplies: its blocks' average times their number."""
    blocks, warps = int(np.prod(launch.grid)), launch.threads // WARP
    order, random = AnyOrder(blocks, warps), np.random.default_rng(0)
    memory = GlobalMemory([(name, value) for name, value in launch.arguments if torch.is_tensor(value)], order)
    chosen = np.sort(random.permutation(blocks)[:BLOCKS])
    counts = CountsOfBlocks(len(chosen), warps)
    together(launch, chosen, memory, counts, random).run()
    scale = blocks / len(chosen)
    return {
        "blocks": blocks,
        "warps": warps,
        "l2": round((counts.sectors_read + counts.sectors_written) * SECTOR * scale),
        "distinct": counts.distinct(memory, blocks),
        "shared": round(counts.shared_bytes * scale),
        "multiplications": round(counts.multiplications * scale),
    }


@contextlib.contextmanager
def watching(emulator) -> Iterator[list[dict]]:
    """Within it each launch is counted, and only the first of equal ones is run; torch's products are not."""
    rows: dict[tuple, dict] = {}
    found: list[dict] = []

    def launch(one: Launch) -> None:
        given = tuple(v.shape if torch.is_tensor(v) else type(v) for _, v in one.arguments)
        key = (one.kernel.program.name, id(one.kernel), one.grid, one.threads, given)
        if key not in rows:
            rows[key] = {"kernel": one.kernel.program.name, "launches": 0} | some_blocks(one)
            found.append(rows[key])
            print("  ", rows[key], file=sys.stderr, flush=True)
        elif np.prod(one.grid) == 1:
            some_blocks(one)  # of a number that other launches go by
        rows[key]["launches"] += 1

    def product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        out = a.new_zeros(*a.shape[:-1], b.shape[-1], dtype=dtype)
        note(a, b, out)
        return out

    def add_product(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, accumulate: bool) -> None:
        note(a, b, out)

    def note(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        key = (PRODUCT, a.shape, b.shape, out.dtype)
        if key not in rows:
            moved = sum(t.numel() * t.element_size() for t in (a, b, out))
            many = out.numel() * a.shape[-1]
            rows[key] = {"kernel": PRODUCT, "launches": 0, "distinct": moved, "multiplications": many}
            found.append(rows[key])
        rows[key]["launches"] += 1

    def new_zeros(like: torch.Tensor, *size: object, **options: object) -> torch.Tensor:
        return like.new_zeros(*size, **options)

    with (
        mock.patch.object(_triton, "matmul", product),
        mock.patch.object(_triton, "add_product", add_product),
        mock.patch.object(torch.Tensor, "new_empty", new_zeros),
    ):
        emulator.launch = launch
        try:
            yield found
        finally:
            del emulator.launch


def lstm(batch: int, steps: int, *, train: bool) -> Callable[[], None]:
    def call() -> None:
        calls = OpCalls(lstm=(batch, steps, 4096), shortest=steps)
        op(calls, "projected_lstm", train=train)

    return call


def op(calls: OpCalls, name: str, *, train: bool) -> None:
    """One call of the op, with its gradients where `train`."""
    inputs, call = getattr(calls, name)({"precision": gpu_model.PRECISION, "backend": "triton"})
    for each in inputs:
        each.requires_grad_(train)
    out = call()
    if train:
        out.backward(torch.ones_like(out))


def characters(calls: OpCalls) -> None:
    """char_cnn as a GPU runs it: forward in Triton, backward in CUDA C++."""
    inputs, call = calls.char_cnn({"precision": gpu_model.PRECISION, "backend": "triton"})
    for each in inputs:
        each.requires_grad_(True)
    features, (table, *weights) = call().detach(), inputs[: 1 + len(calls.filters)]
    # A window of eight letters and their marks wins.
    winners = torch.cat([torch.randint(0, 11 - w.shape[2], (calls.words, len(w))) for w in weights], 1)
    given = torch.ones_like(features), features.fill_(1), winners.to(torch.int16), calls.spelled()
    given += table.detach(), [w.detach() for w in weights]
    cuda.char_cnn_backward(triton.runtime.driver.active, *given, precision=gpu_model.PRECISION)


def updates(rows: int) -> None:
    """Of two LSTM layers' and the highways' weights, and of so many rows of the softmax's table."""
    calls = OpCalls(samples=rows, rows=0)
    lstm = [each for _ in range(4) for each in calls.lstm_weights()]
    weights = [*lstm, *(calls.tensor(4096, 2048) for _ in range(2)), calls.tensor(512, 2048)]
    ops.square_norm(weights, backend="triton")
    ops.adagrad_(weights, [torch.ones_like(w) for w in weights], [w.clone() for w in weights], 0.2, backend="triton")
    ids, of_rows = torch.randint(0, 100_000, (rows,)), calls.tensor(rows, 512)
    ops.merged_square_norm(ids, of_rows, 100_000, backend="triton")
    ops.adagrad_rows_(calls.tensor(100_000, 512), torch.ones(100_000, 512), ids, of_rows, 0.2, backend="triton")


WORDS = 1792  # that differ, among the 2 x 128 x 20 of a step: 1,555 to 1,715 of prose, padded
STEP = OpCalls(words=WORDS, rows=4 * 128 * 20)
WORKS: dict[str, Callable[[], None]] = {
    "forward of an LSTM layer, 128 rows, 20 steps": lstm(128, 20, train=False),
    "forward of an LSTM layer, 16 rows, 20 steps": lstm(16, 20, train=False),
    "an LSTM layer, 128 rows, 20 steps": lstm(128, 20, train=True),
    f"char_cnn, {WORDS} words": lambda: characters(STEP),
    f"highway, {WORDS} words": lambda: op(STEP, "highway", train=True),
    "sampled_softmax, 2560 rows, 8192 samples": lambda: op(STEP, "sampled_softmax", train=True),
    "adagrad and the gradient's norm, all weights": lambda: updates(2 * 8192 + 2 * 2560),
}


def counted(emulator, name: str) -> list[dict]:
    torch.manual_seed(0)
    with watching(emulator) as found:
        WORKS[name]()
    return found


def main() -> None:
    from tests.ptx import plugin

    emulator = plugin.install()
    kept = json.loads(gpu_model.COUNTS.read_text(encoding="utf-8")) if gpu_model.COUNTS.is_file() else {}
    for name in sys.argv[1:] or WORKS:
        print(name, file=sys.stderr)
        kept[name] = counted(emulator, name)
    gpu_model.write({name: kept.get(name, []) for name in WORKS})


if __name__ == "__main__":
    main()
