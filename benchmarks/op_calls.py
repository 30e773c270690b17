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
        return [table, *weights, *biases], lambda: ops.char_cnn(ids, table, weights, biases, **how)

    def highway(self, how: How) -> Call:
        """Two layers and the projection."""
        width = sum(number for _, number in self.filters)
        x, scale = self.tensor(self.words, width), width**-0.5
        weights = [self.tensor(2 * width, width, scale=scale) for _ in range(2)]
        biases = [self.tensor(2 * width) for _ in range(2)]
        projection, bias = self.tensor(self.projection, width, scale=scale), self.tensor(self.projection)
        return [x, *weights, *biases, projection, bias], lambda: ops.highway(
            x, weights, biases, projection, bias, **how
        )

    def lstm_weights(self) -> ops.LSTMWeights:
        """Of one direction."""
        cells, size = self.lstm[2], self.projection
        shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
        return ops.LSTMWeights(*(self.tensor(*shape, scale=cells**-0.5) for shape in shapes))

    def projected_lstm(self, how: How) -> Call:
        """Both directions over sentences of several lengths."""
        batch, steps, _ = self.lstm
        weights = [self.lstm_weights() for _ in range(2)]
        x = self.tensor(batch, steps, self.projection)
        lengths = torch.arange(batch) % (steps - 8) + 9  # at least 9 steps
        return [x, *weights[0], *weights[1]], lambda: ops.projected_lstm(  # type: ignore[list-item]
            [x, x], weights, lengths, residual=True, **how
        )[0]

    def scalar_mix(self, how: How) -> Call:
        """Two mixes of three layers."""
        layers = [self.tensor(*self.mix) for _ in range(3)]
        scalars, gammas = self.tensor(2, 3), self.tensor(2)
        return [*layers, scalars, gammas], lambda: ops.scalar_mix(layers, scalars, gammas, backend=how["backend"])

    def output_layer(self, rows: int, words: int, scale: float = 1.0) -> list[Tensor]:
        """Hidden states [rows, D], a table [words, D] and its bias."""
        size = self.projection
        return [self.tensor(rows, size), self.tensor(words, size, scale=scale), self.tensor(words)]

    def sampled_softmax(self, how: How) -> Call:
        """A quarter of the rows: those of one direction."""
        samples, tries = ops.log_uniform_sample(self.samples, self.table, seed=0)
        inputs = hidden, weight, bias = self.output_layer(self.rows // 4, self.table)
        targets = torch.randint(0, self.table, (len(hidden),))
        return inputs, lambda: ops.sampled_softmax(hidden, targets, weight, bias, samples, tries, sparse=True, **how)

    def full_softmax(self, how: How) -> Call:
        """A quarter of the rows, a fifth of the words."""
        inputs = hidden, weight, bias = self.output_layer(self.rows // 4, self.table // 5)
        targets = torch.randint(0, len(weight), (len(hidden),))
        return inputs, lambda: ops.full_softmax(hidden, targets, weight, bias, **how)

    def counts(self) -> Tensor:
        """How often each word of the table occurs: by rank, as Zipf's law has it."""
        return 10**7 // torch.arange(1, self.table + 1)

    def negative_sampling(self, how: How) -> Call:
        """All rows."""
        law = ops.alias_table(self.counts(), power=0.75)
        samples = ops.alias_sample(self.samples // 8, law, seed=0)
        inputs = hidden, weight, bias = self.output_layer(self.rows, self.table)
        targets = ops.alias_sample(self.rows, ops.alias_table(self.counts()), seed=1)
        return inputs, lambda: ops.negative_sampling(hidden, targets, weight, bias, samples, sparse=True, **how)

    def hierarchical_softmax(self, how: How) -> Call:
        """All rows."""
        tree = ops.huffman_tree(self.counts())
        inputs = hidden, weight, bias = self.output_layer(self.rows, self.table - 1, scale=0.1)
        targets = ops.alias_sample(self.rows, ops.alias_table(self.counts()), seed=1)
        return inputs, lambda: ops.hierarchical_softmax(hidden, targets, weight, bias, tree, sparse=True, **how)

    def alias_sample(self, how: How) -> Call:
        """The noise of one step; it has no gradient."""
        table = ops.alias_table(self.counts(), power=0.75)
        return [], lambda: ops.alias_sample(self.samples, table, seed=0, backend=how["backend"])

    def adagrad(self, how: How) -> Call:
        """One update of an LSTM direction's weights, and of the table's rows that a batch used; it has no gradient."""
        weights, gradients = (list(self.lstm_weights()) for _ in range(2))
        sums = [torch.ones_like(weight) for weight in weights]  # type: ignore[arg-type]
        count = min(self.table, self.samples + self.rows // 4)
        table, rows = self.tensor(self.table, self.projection), self.tensor(count, self.projection)
        table_sums, ids = torch.ones_like(table), torch.randperm(self.table)[:count].sort()[0]

        def update() -> Tensor:
            ops.adagrad_(weights, sums, gradients, 0.2, backend=how["backend"])  # type: ignore[arg-type]
            ops.adagrad_rows_(table, table_sums, ids, rows, 0.2, backend=how["backend"])
            return table_sums[:1]

        return [], update

    def gather_runs(self, how: How) -> Call:
        """Sentences of 25 words from three shards, half of them backwards; it has no gradient."""
        shards = [torch.randint(0, self.table, (8 * self.table,), dtype=torch.int32) for _ in range(3)]
        count = self.table // 5
        first, lengths = torch.randint(25, 24 * self.table - 25, (count,)), torch.full((count,), 25)
        return [], lambda: ops.gather_runs(shards, first, lengths, count // 2, backend=how["backend"])

    def glove(self, how: How) -> Call:
        """Steps of entries in random order, dimension 100; it has no gradient."""
        num_words, entries = self.glove_words, self.glove_entries
        rows, columns = (torch.randint(0, num_words, (entries,), dtype=torch.int32) for _ in "ij")
        values = torch.rand(entries) * 30 + 0.1
        shapes = (num_words, 100), (num_words, 100), (num_words,), (num_words,)
        weights = glove.GloveWeights(*(self.tensor(*shape, scale=0.005) for shape in shapes))
        squares = glove.GloveWeights(*(torch.ones(*shape) for shape in shapes))
        return [], lambda: glove.glove_(rows, columns, values, weights, squares, backend=how["backend"])


TOY = OpCalls(
    filters=((1, 4), (2, 8), (3, 20)), words=16, projection=32, lstm=(32, 20, 64), mix=(32, 22, 64), rows=16,
    table=1000, samples=64, glove_words=500, glove_entries=50,
)  # fmt: skip
