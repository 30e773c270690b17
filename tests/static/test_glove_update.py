"""glove_: AdaGrad's steps entry after entry, against float64, and the loss that eq. 8 of the paper has."""

import pytest
import torch

from elmo_fast.ops import _native
from elmo_fast.static.glove import GloveWeights, glove_
from tests.support.backends import backends
from tests.support.tolerances import assert_close, assert_no_worse

BACKENDS = backends("glove", reference=True)
native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def case(num_words=7, dimension=5, entries=60, dtype=torch.float64):
    """Entries of repeated words on either side of x_max = 10, and squares that are no longer 1."""
    rows, columns = (torch.randint(0, num_words, (entries,), dtype=torch.int32) for _ in "ij")
    values = (torch.rand(entries, dtype=torch.float64) * 20 + 0.05).to(dtype)
    shapes = (num_words, dimension), (num_words, dimension), (num_words,), (num_words,)
    weights = GloveWeights(*(torch.randn(*s, dtype=torch.float64).div(dimension**0.5).to(dtype) for s in shapes))
    squares = GloveWeights(*(torch.rand(*shape, dtype=torch.float64).add(0.5).to(dtype) for shape in shapes))
    return rows, columns, values, weights, squares


def run(arguments, backend, dtype, **options):
    """(loss, the eight tables) after a pass over copies."""
    rows, columns, values, weights, squares = arguments
    tables = [GloveWeights(*(table.to(dtype, copy=True) for table in group)) for group in (weights, squares)]
    loss = glove_(rows, columns, values.to(dtype), *tables, x_max=10.0, backend=backend, **options)
    return loss, [*tables[0], *tables[1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_entry_by_hand(backend):
    """f, the difference and every step of the formula in the docstring, written out."""
    w, c, b, d = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 0.25]]), torch.tensor([0.1]), torch.tensor([-0.3])
    weights = GloveWeights(w.clone(), c.clone(), b.clone(), d.clone())
    squares = GloveWeights(*(torch.full_like(table, 4.0) for table in weights))
    zero = torch.zeros(1, dtype=torch.int32)
    actual = glove_(
        zero, zero, torch.tensor([3.0]), weights, squares, learning_rate=0.1, x_max=12.0, alpha=0.5, backend=backend
    )
    factor, difference = (3 / 12) ** 0.5, 1 * 0.5 - 2 * 0.25 + 0.1 - 0.3 - torch.tensor(3.0).log()
    slope = 0.1 * factor * difference
    assert actual.dtype == torch.float64
    assert_close("loss", actual, factor * difference**2)
    for name, before, gradient in (
        ("words", w, slope * c),
        ("contexts", c, slope * w),
        ("word_biases", b, slope),
        ("context_biases", d, slope),
    ):
        assert_close(name, getattr(weights, name), before - gradient / 2)
        assert_close(f"squares of {name}", getattr(squares, name), 4 + gradient**2 + 0 * before)


@native
@pytest.mark.parametrize("dimension", [1, 15, 16, 37, 100])
@pytest.mark.parametrize(("num_words", "entries"), [(1, 5), (3, 2), (9, 200), (4, 0)])
def test_one_thread_is_entry_after_entry(num_words, dimension, entries):
    """Float64 to the last digits; float32 no further from float64 than plain torch's float32."""
    arguments = case(num_words, dimension, entries)
    loss, truth = run(arguments, "reference", torch.float64)
    exact_loss, exact = run(arguments, "native", torch.float64)
    assert_close("loss", exact_loss, loss, "float64")
    for i, tables in enumerate(zip(exact, truth, strict=True)):
        assert_close(f"table {i}", *tables, "float64")
    torchs_loss, torchs = run(arguments, "reference", torch.float32)
    our_loss, actual = run(arguments, "native", torch.float32)
    assert_no_worse("loss", our_loss, torchs_loss, loss, "float32")
    for i, tables in enumerate(zip(actual, torchs, truth, strict=True)):
        assert_no_worse(f"table {i}", *tables, "float32")


@native
def test_opcheck():
    rows, columns, values, weights, squares = case(4, 3, 6, torch.float32)
    arguments = rows, columns, values, list(weights), list(squares), 0.05, 10.0, 0.75
    torch.library.opcheck(torch.ops.elmo_fast.glove, arguments)
