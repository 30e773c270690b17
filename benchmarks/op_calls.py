"""Calls of every op with random tensors, at the sizes of the original architecture and at toy sizes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.pretrain.config import ORIGINAL_FILTERS
from elmo_fast.static import glove

# The precision and the backend, by these names.
How = Mapping[str, Any]
# The inputs that have a gradient, and the op applied to them.
Call = tuple[list[Tensor], Callable[[], Tensor]]


def differentiated(
    forward: Callable[[], Any], leaves: Sequence[Tensor], *, train: bool = True
) -> Callable[[], tuple[Any, tuple[Tensor, ...]]]:
    """Return a call that returns what forward() does (a tensor, or a tuple) and, if `train`, the gradients of `leaves`.

    The gradient of an output is random and depends on its shape alone, so that sides of a comparison have the same.
    """

    def run() -> tuple[Any, tuple[Tensor, ...]]:
        with torch.set_grad_enabled(train):
            outputs = forward()
            return outputs, torch.autograd.grad(outputs, leaves, cotangents) if train else ()

    cotangents = []
    if train:
        outputs = forward()
        for each in outputs if isinstance(outputs, tuple) else (outputs,):
            generator = torch.Generator(each.device).manual_seed(1)
            cotangents.append(torch.randn(each.shape, device=each.device, generator=generator).to(each.dtype))
        del outputs, each  # and what their backward pass would have read
    return run


@dataclasses.dataclass(frozen=True)
class OpCalls:
    """A method of each op's name makes its tensors and returns them with the call.

    The sizes are the original architecture's unless others are given. filters: (width, number); words: of `char_cnn`
    and `highway`; lstm: B, T and H; mix: shape of each layer; rows: N of the losses;
    table: V.
    """

    filters: Sequence[Sequence[int]] = tuple(ORIGINAL_FILTERS)
    words: int = 400
    projection: int = 512
    lstm: tuple[int, int, int] = (32, 20, 4096)
    mix: tuple[int, int, int] = (32, 22, 1024)
    rows: int = 640
    table: int = 100_000
    samples: int = 8192
    glove_words: int = 20_000
    glove_entries: int = 1000  # few: the reference takes them one by one

    def tensor(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Numbers between -scale and scale."""
        return torch.empty(*shape).uniform_(-scale, scale)

    def char_cnn(self, how: How) -> Call:
        """Words of eight letters."""
        ids = torch.randint(97, 123, (self.words, 50))
        ids[:, 0], ids[:, 9], ids[:, 10:] = 259, 260, 261
        weights = [self.tensor(number, 16, width, scale=0.2) for width, number in self.filters]
        biases = [self.tensor(number) for _, number in self.filters]
        table = self.tensor(262, 16)
        packed = ops.PackedWeights()
        return [table, *weights, *biases], lambda: ops.char_cnn(ids, table, weights, biases, packed=packed, **how)

    def highway(self, how: How) -> Call:
        """Two layers and the projection."""
        width = sum(number for _, number in self.filters)
        x, scale = self.tensor(self.words, width), width**-0.5
        weights = [self.tensor(2 * width, width, scale=scale) for _ in range(2)]
        biases = [self.tensor(2 * width) for _ in range(2)]
        projection, bias = self.tensor(self.projection, width, scale=scale), self.tensor(self.projection)
        packed = ops.PackedWeights()
        return [x, *weights, *biases, projection, bias], lambda: ops.highway(
            x, weights, biases, projection, bias, packed=packed, **how
        )

    def lstm_weights(self) -> ops.LSTMWeights:
        """Of one direction."""
        cells, size = self.lstm[2], self.projection
        shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
        return ops.LSTMWeights(*(self.tensor(*shape, scale=cells**-0.5) for shape in shapes))

    def projected_lstm(self, how: How) -> Call:
        """Both directions over sentences of several lengths."""
        batch, steps, _ = self.lstm
        weights: list[Any] = [self.lstm_weights() for _ in range(2)]
        x = self.tensor(batch, steps, self.projection)
        lengths = torch.arange(batch) % (steps - 8) + 9  # at least 9 steps
        packed = ops.PackedWeights()
        return [x, *weights[0], *weights[1]], lambda: ops.projected_lstm(
            [x, x], weights, lengths, residual=True, packed=packed, **how
        )[0]

    def scalar_mix(self, how: How) -> Call:
        """Two mixes of three layers."""
        layers = [self.tensor(*self.mix) for _ in range(3)]
        scalars, gammas = self.tensor(2, 3), self.tensor(2)
        return [*layers, scalars, gammas], lambda: ops.scalar_mix(layers, scalars, gammas, backend=how["backend"])

    def loss(self, op: Any, rows: int, entries: int, targets: Any, *more: Any, scale: float = 1.0, **how: Any) -> Call:
        """A loss of hidden states [rows, D] over a table [entries, D] and its bias; targets: None for even ones."""
        size = self.projection
        inputs = [self.tensor(rows, size), self.tensor(entries, size, scale=scale), self.tensor(entries)]
        targets = torch.randint(0, entries, (rows,)) if targets is None else targets
        return inputs, lambda: op(inputs[0], targets, *inputs[1:], *more, **how)

    def sampled_softmax(self, how: How) -> Call:
        """A quarter of the rows: those of one direction."""
        samples = ops.log_uniform_sample(self.samples, self.table, seed=0)
        return self.loss(ops.sampled_softmax, self.rows // 4, self.table, None, *samples, sparse=True, **how)

    def full_softmax(self, how: How) -> Call:
        """A quarter of the rows, a fifth of the words."""
        return self.loss(ops.full_softmax, self.rows // 4, self.table // 5, None, **how)

    def counts(self) -> Tensor:
        """How often each word of the table occurs: by rank, as Zipf's law has it."""
        return 10**7 // torch.arange(1, self.table + 1)

    def negative_sampling(self, how: How) -> Call:
        """All rows."""
        samples = ops.alias_sample(self.samples // 8, ops.alias_table(self.counts(), power=0.75), seed=0)
        targets = ops.alias_sample(self.rows, ops.alias_table(self.counts()), seed=1)
        return self.loss(ops.negative_sampling, self.rows, self.table, targets, samples, sparse=True, **how)

    def hierarchical_softmax(self, how: How) -> Call:
        """All rows."""
        tree, op = ops.huffman_tree(self.counts()), ops.hierarchical_softmax
        targets = ops.alias_sample(self.rows, ops.alias_table(self.counts()), seed=1)
        return self.loss(op, self.rows, self.table - 1, targets, tree, scale=0.1, sparse=True, **how)

    def adagrad(self, how: How) -> Call:
        """One update of an LSTM direction's weights, and of the table's rows that a batch used; it has no gradient."""
        weights, gradients = ([each for each in self.lstm_weights() if each is not None] for _ in range(2))
        sums = [torch.ones_like(weight) for weight in weights]
        count = min(self.table, self.samples + self.rows // 4)
        table, rows = self.tensor(self.table, self.projection), self.tensor(count, self.projection)
        table_sums, ids = torch.ones_like(table), torch.randperm(self.table)[:count].sort()[0]

        def update() -> Tensor:
            ops.adagrad_(weights, sums, gradients, 0.2, backend=how["backend"])
            ops.adagrad_rows_(table, table_sums, ids, rows, 0.2, backend=how["backend"])
            return table_sums[:1]

        return [], update

    def glove(self, how: How) -> Call:
        """Steps of entries in random order, dimension 100; it has no gradient."""
        num_words, entries = self.glove_words, self.glove_entries
        rows, columns = (torch.randint(0, num_words, (entries,), dtype=torch.int32) for _ in "ij")
        values = torch.rand(entries) * 30 + 0.1
        weights, squares = glove_weights(num_words, 100, 0.005)
        return [], lambda: glove.glove_(rows, columns, values, weights, squares, backend=how["backend"])


def glove_weights(num_words: int, dimension: int, scale: float) -> tuple[glove.GloveWeights, glove.GloveWeights]:
    """Random weights between -scale and scale, and AdaGrad's sums."""
    shapes = (num_words, dimension), (num_words, dimension), (num_words,), (num_words,)
    weights = glove.GloveWeights(*(torch.empty(*shape).uniform_(-scale, scale) for shape in shapes))
    return weights, glove.GloveWeights(*map(torch.ones_like, weights))


TOY = OpCalls(
    filters=((1, 4), (2, 8), (3, 20)), words=16, projection=32, lstm=(32, 20, 64), mix=(32, 22, 64), rows=16,
    table=1000, samples=64, glove_words=500, glove_entries=50,
)  # fmt: skip
