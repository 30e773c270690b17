"""Stand-ins for captured CUDA graphs, on a machine without a GPU."""

import weakref

import torch

from elmo_fast.ops import _graphs
from tests.backends import HAS_CUDA
from tests.tolerances import assert_no_worse

_entries = weakref.WeakKeyDictionary()


def assert_alike(name, replayed, launched, truth, precision, padded):
    """The same bits. Where a bucket is larger than the call (`padded`) a GPU's libraries see products of other sizes,
    whose sums may have another order: there both are held to float64.

    truth: () -> the float64 results, asked for where they decide.
    """
    if HAS_CUDA and padded:
        for i, (actual, expected, right) in enumerate(zip(replayed, launched, truth(), strict=True)):
            assert_no_worse(f"{name}, result {i}", actual.cpu(), expected.cpu(), right.cpu(), precision)
    else:
        assert all(torch.equal(a, b) for a, b in zip(replayed, launched, strict=True)), name


class Standing:
    """A captured run that runs the function again on the same inputs, into the same outputs.

    As graphs of one pool share their memory, a replay leaves nothing of what the others computed.
    """

    def __init__(self, function, inputs, pool):
        self.function, self.inputs, self.outputs = function, inputs, function(*inputs)
        self.others = _entries.setdefault(pool, weakref.WeakSet())
        self.others.add(self)

    def replay(self):
        values = [value.clone() for value in self.function(*self.inputs)]
        for other in list(self.others):
            for output in other.outputs:
                output.fill_(float("nan") if output.is_floating_point() else 1)
        for into, value in zip(self.outputs, values, strict=True):
            into.copy_(value)


def again(function, inputs, pool):
    """As `_graphs.capture`."""
    standing = Standing(function, inputs, pool)
    return _graphs.Entry(inputs, standing.outputs, standing.replay, function)


def at_most(times, entry):
    """The entry, of whose replays so many run; those after them leave what the last one left."""
    left = iter(range(times))
    return entry._replace(replay=lambda: next(left, None) is None or entry.replay())
