"""What eager torch would launch, move and multiply in the place of our kernels, counted on tensors without memory.

`python -m benchmarks.gpu.eager` writes counted_eager.json, from which predict.py predicts times. Each op of torch that
is no view is one launch, which reads its inputs and writes its results; a product's operations are torch's own count.
So eager torch is counted at its best: an op on a list of tensors is one launch, none reads anything twice, and nothing
is counted of shared memory.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.gpu import predict
from elmo_fast.ops import LSTMWeights
from elmo_fast.pretrain.config import ORIGINAL_FILTERS
from elmo_fast.tuning import rivals

FREE = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_unsafe_view", "detach"}
LOOKED_UP = {"embedding", "index_select", "gather"}  # of whose first input only what they give is read
HALF = torch.float16


def size(tensor: Tensor) -> int:
    """Bytes that it has in memory: an expanded dimension has none of its own."""
    numbers = 1
    for each, stride in zip(tensor.shape, tensor.stride(), strict=True):
        numbers *= each if stride else 1
    return numbers * tensor.element_size()


class Launches(TorchDispatchMode):
    """Counts the ops that run within it: `rows` has those of one kind and shape as predict.py takes launches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[tuple[str, int, int]] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = op(*args, **kwargs)
        name = op._schema.name.removeprefix("aten::")
        if op.namespace == "aten" and not op.is_view and name not in FREE:
            read = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            written = [t for t in pytree.tree_leaves(out) if isinstance(t, Tensor)]
            moved = sum(map(size, read[name in LOOKED_UP :])) + sum(map(size, written)) * (1 + (name in LOOKED_UP))
            counts = flop_registry.get(op._overloadpacket)
            flops = counts(*args, **kwargs, out_val=out) if counts is not None else 0
            self.found[name, moved, flops // 2] += 1
        return out

    @property
    def rows(self) -> list[dict[str, Any]]:
        """An op that comes again finds in the L2 what fits into it, as our launches do."""
        return [
            {"kernel": name, "launches": launches, "distinct": moved, "l2": moved, "multiplications": many}
            for (name, moved, many), launches in self.found.items()
        ]


def leaf(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.empty(*shape, dtype=dtype, requires_grad=True)


def lstm(batch: int, *, train: bool, steps: int = 20, width: int = 512, cells: int = 4096) -> None:
    """AllenNLP's loop, with the inputs' product before it."""
    shapes = (4 * cells, width), (4 * cells, width), (4 * cells,), (width, cells)
    weights = [LSTMWeights(*(leaf(*shape) for shape in shapes)) for _ in range(2)]
    with torch.set_grad_enabled(train):
        out = rivals.lstm_loop([leaf(batch, steps, width)] * 2, weights, hoist=True)
    if train:
        out.backward(torch.empty_like(out))


def encoder() -> rivals.EncoderWeights:
    width = sum(number for _, number in ORIGINAL_FILTERS)
    return rivals.EncoderWeights(
        leaf(262, 16), [leaf(number, 16, k) for k, number in ORIGINAL_FILTERS],
        [leaf(number) for _, number in ORIGINAL_FILTERS], [leaf(2 * width, width) for _ in range(2)],
        [leaf(2 * width) for _ in range(2)], leaf(512, width), leaf(512),
    )  # fmt: skip


def backward(out: Tensor) -> None:
    out.backward(torch.empty_like(out))


def sampled_softmax(rows: int = 2560, samples: int = 8192, size: int = 512, words: int = 100_000) -> None:
    """The offsets of the words are given."""
    ids, table = torch.empty(rows + samples, dtype=torch.int64), leaf(words, size)
    given = nn.functional.embedding(ids, table, sparse=True)
    offsets = leaf(rows + samples)
    backward(rivals.sampled_losses(leaf(rows, size), given[:rows], given[rows:], offsets, ids))


def updates(rows: int = 2 * 8192 + 2 * 2560) -> None:
    """torch.optim.Adagrad and the norm, over all tensors at once; the table's rows as if they were merged already."""
    shapes = [*[(16384, 512), (16384, 512), (16384,), (512, 4096)] * 4, *[(4096, 2048)] * 2, (512, 2048), (rows, 512)]
    weights = [nn.Parameter(torch.empty(shape)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    optimiser = torch.optim.Adagrad(weights, foreach=True)
    torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
    optimiser.step()


WORDS = 5000
WORKS: dict[str, Callable[[], None]] = {
    "forward of an LSTM layer, 128 rows, 20 steps": lambda: lstm(128, train=False),
    "forward of an LSTM layer, 16 rows, 20 steps": lambda: lstm(16, train=False),
    "an LSTM layer, 128 rows, 20 steps": lambda: lstm(128, train=True),
    f"char_cnn, {WORDS} words": lambda: backward(rivals.convolve(torch.empty(WORDS, 50, dtype=torch.int64), encoder())),
    f"highway, {WORDS} words": lambda: backward(rivals.highways(leaf(WORDS, 2048), encoder())),
    "sampled_softmax, 2560 rows, 8192 samples": sampled_softmax,
    "adagrad and the gradient's norm, all weights": updates,
}


def counted(name: str) -> list[dict[str, Any]]:
    """What one of WORKS launches."""
    with FakeTensorMode(), Launches() as found:
        WORKS[name]()
    return found.rows


def main() -> None:
    """Writes the counts of all."""
    predict.write(predict.OF_EAGER, {name: counted(name) for name in WORKS})


if __name__ == "__main__":
    main()
