"""How fast a GPU could be at most: counted operations over the rate of the unit that does them, counted bytes over the
bandwidth. Both rates are measured in the same run (section `ceilings`).

Counted is the least that any version must do: one multiply-add is two operations; each input is read once, each output
written once; a backward pass of a product is two more products. B, T, I, D, H, R, V, S, L, M as in elmo_fast.ops.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from elmo_fast.pretrain.config import ORIGINAL_FILTERS


class Work(NamedTuple):
    """What must be done: operations of matrix products, and bytes to and from the GPU's memory."""

    flops: float
    bytes: float

    def plus(self, *others: "Work") -> "Work":
        """The sum."""
        return Work(self.flops + sum(o.flops for o in others), self.bytes + sum(o.bytes for o in others))

    def times(self, n: float) -> "Work":
        """The same, n times."""
        return Work(self.flops * n, self.bytes * n)

    def floor(self, ceilings: Mapping[str, float], precision: str) -> tuple[float, str]:
        """(seconds, "arithmetic" or "memory"): the larger of the two times, and which it is."""
        arithmetic, memory = self.flops / ceilings[precision], self.bytes / ceilings["copy"]
        return (arithmetic, "arithmetic") if arithmetic >= memory else (memory, "memory")


def product(rows: float, inner: float, columns: float) -> float:
    """Operations of a matrix product [rows, inner] · [inner, columns]."""
    return 2.0 * rows * inner * columns


def lstm_steps(batch: int, steps: int, cells: int, size: int, *, train: bool = False) -> Work:
    """The time loop of one direction of one layer: h·W_hh^T and the projection at every step; 16-bit weights read once.

    Bytes: weights, the gates' input halves and the outputs; training also writes and reads back, per cell, four
    pre-activations (16 bit) and the cell state (32), and writes the weights' gradients in 32 bit.
    """
    weights = 5 * cells * size
    flops = steps * (product(batch, size, 4 * cells) + product(batch, cells, size))
    traffic = 2 * weights + steps * batch * (2 * 4 * cells + 4 * size)
    if not train:
        return Work(flops, traffic)
    saved = steps * batch * cells * (4 * 2 + 4)
    gradients = steps * batch * (2 * 4 * cells + 4 * size) + 2 * weights + 4 * weights
    return Work(3 * flops, traffic + 2 * saved + gradients)


def lstm_inputs(batch: int, steps: int, inputs: int, cells: int, *, train: bool = False) -> Work:
    """The inputs' product of one direction of one layer, for all steps at once: x·W_ih^T, 16 bit out."""
    rows = batch * steps
    flops = product(rows, inputs, 4 * cells)
    traffic = 2.0 * 4 * cells * inputs + 4.0 * rows * inputs + 2.0 * rows * 4 * cells
    return Work(3 * flops, 3 * traffic) if train else Work(flops, traffic)


def lstm_layer(
    batch: int, steps: int, inputs: int, cells: int, size: int, directions: int, *, train: bool = False
) -> Work:
    """A whole layer: inputs' product and time loop of each direction. The gates' input halves pass through memory."""
    one = lstm_inputs(batch, steps, inputs, cells, train=train).plus(lstm_steps(batch, steps, cells, size, train=train))
    return one.times(directions)


def encoder(
    words: int,
    filters: Sequence[Sequence[int]] = ORIGINAL_FILTERS,
    *,
    embedding: int = 16,
    slots: int = 50,
    highways: int = 2,
    size: int = 512,
    train: bool = False,
) -> Work:
    """Characters of `words` words to vectors: convolutions at every window, highways, projection.

    Backward, a convolution has work only at the window that won: two products of one window each per word and filter.
    """
    width = sum(number for _, number in filters)
    windows = sum(2.0 * number * k * embedding * (slots - k + 1) for k, number in filters)
    winners = sum(2.0 * number * k * embedding for k, number in filters)
    dense = highways * product(1, width, 2 * width) + product(1, width, size)
    weights = winners / 2 + highways * 2 * width * width + width * size
    if not train:
        return Work(words * (windows + dense), 2 * weights + words * (8 * slots + 4 * size))
    saved = words * 2 * (width + highways * 2 * width)
    return Work(
        words * (windows + 2 * winners + 3 * dense),
        2 * 2 * weights + 4 * weights + 2 * saved + words * (8 * slots + 2 * 4 * size),
    )


def sampled_softmax(rows: int, samples: int, size: int, *, train: bool = True) -> Work:
    """N rows against S samples and their own targets: 32-bit rows of the table in, gradients of those rows out."""
    flops = product(rows, size, samples) + product(rows, size, 1)
    read = 4.0 * size * (rows + samples + rows)
    return Work(3 * flops, 2 * read) if train else Work(flops, read)


def paths(steps: int, nodes: int, rows: int, size: int) -> Work:
    """N rows along paths of so many steps in all, forward and backward: hidden states and the 32-bit rows of the nodes
    that are on any path in, their gradients out."""
    return Work(3 * product(steps, size, 1), 2 * 4.0 * size * (rows + nodes))


def scalar_mix(positions: int, width: int, layers: int, mixes: int, *, train: bool = False) -> Work:
    """M mixes of L layers [positions, width] in 32 bit; backward reads gradients and layers, writes L gradients."""
    numbers = layers + mixes
    if train:
        numbers += mixes + 2 * layers
    return Work(0.0, 4.0 * positions * width * numbers)


def adagrad(numbers: int) -> Work:
    """An update: gradient, weight and sum of squares are read, the last two written; 32 bit."""
    return Work(0.0, 5 * 4.0 * numbers)


def bilm(batch: int, steps: int, cells: int, size: int, layers: int, words: int) -> Work:
    """Forward of the whole biLM at inference: `words` words through the encoder, L layers of two directions."""
    return encoder(words, size=size).plus(lstm_layer(batch, steps, size, cells, size, 2).times(layers))


def train_step(
    batch: int, steps: int, words: int, cells: int, size: int, layers: int, samples: int, table_rows: int
) -> Work:
    """One step of pretraining: both streams, forward, backward and AdaGrad on all weights and the rows that were used.

    words: distinct words of both streams together, which the encoder sees once each.
    """
    lstm = lstm_layer(batch, steps, size, cells, size, 2, train=True).times(layers)
    softmax = sampled_softmax(batch * steps, samples, size).times(2)
    filters = sum(number for _, number in ORIGINAL_FILTERS)
    dense = 2 * layers * (4 * cells * (2 * size + 1) + cells * size) + 4 * filters * filters + filters * size
    return encoder(words, size=size, train=True).plus(lstm, softmax, adagrad(dense), adagrad(table_rows * size))
