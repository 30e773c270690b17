"""adagrad_rows_: rows of one id are merged before they are squared, whatever the ids, their order and the width."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    _triton,
    adagrad_rows_,
    merged_square_norm,
    row_order,
)
from elmo_fast.ops.adagrad import RowOrder
from tests.ops.adagrad_cases import WIDTHS, every, fewer, merged, repeated, triton, written_out
from tests.support.tolerances import assert_close, assert_no_worse


def check_rows(backend, ids, width, words, scale, order=False):
    table, sums, rows = torch.randn(words, *width), torch.rand(words, *width) + 0.5, torch.randn(len(ids), *width)
    actual = []
    for dtype in (torch.float64, torch.float32):
        gradient, touched = merged(ids, rows.to(dtype), words)
        factor = 1.0 if scale is None else scale.item()
        moved = [x[0] for x in written_out([table.to(dtype)], [sums.to(dtype)], [gradient], 0.2, factor)]
        actual.append(moved)
    result, accumulator, kept = table.clone(), sums.clone(), rows.clone()
    given_order = row_order(ids, words) if order else None
    adagrad_rows_(result, accumulator, ids, rows, 0.2, scale, order=given_order, backend=backend)
    for name, mine, plain, truth in zip("wa", (result, accumulator), actual[1], actual[0], strict=True):
        assert_no_worse(name, mine, plain, truth, "float32")
    assert torch.equal(result[~touched], table[~touched])
    assert torch.equal(accumulator[~touched], sums[~touched])
    assert torch.equal(rows, kept)


@every
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_rows_are_the_dense_update_of_merged_rows(backend, width):
    """Segments within a piece, over its border, over many pieces; other rows keep their bits."""
    count, words = fewer(width)
    check_rows(backend, repeated(count, words, 160), width, words, torch.tensor(0.4))


@every
@pytest.mark.parametrize(("count", "width"), [(0, ()), (1, (40,)), (8, ()), (9, (40,)), (65, (40,)), (129, ())])
def test_all_ids_equal(backend, count, width):
    check_rows(backend, torch.full((count,), 3), width, 5, None)
    check_rows(backend, torch.full((count,), 4), width, 5, None)


@every
def test_a_segment_of_more_pieces_than_are_loaded_at_once(backend):
    """1,100 rows of one word are 18 pieces, ended by another word in the middle of the last."""
    ids = torch.cat([torch.zeros(3, dtype=torch.long), torch.full((1100,), 1), torch.full((37,), 2)])
    check_rows(backend, ids[torch.randperm(len(ids))], (3,), 4, None)


@every
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_of_either_width_with_an_order_or_without(backend, dtype):
    ids = repeated(150, 40, 70).to(dtype)
    for order in (False, True):
        check_rows(backend, ids, (6,), 40, torch.tensor(1.5), order)


@every
def test_strided_rows_and_ids(backend):
    table, sums = torch.randn(20, 6), torch.ones(20, 6)
    ids, rows = torch.randint(0, 20, (60,)), torch.randn(6, 60)
    expected = table.clone(), sums.clone()
    adagrad_rows_(*expected, ids[::2].contiguous(), rows.t()[::2].contiguous(), 0.2, backend="reference")
    order = RowOrder(*(torch.stack([each, each], 1)[:, 0] for each in row_order(ids[::2], 20)))
    for given_order in (None, order):
        weight, squares = table.clone(), sums.clone()
        adagrad_rows_(weight, squares, ids[::2], rows.t()[::2], 0.2, order=given_order, backend=backend)
        assert_close("w", weight, expected[0])
        assert_close("a", squares, expected[1])


@every
def test_many_rows_of_a_large_table(backend):
    """2 columns of 800,000 words, ids as frequent as a log-uniform law makes them."""
    words, count = 800_000, 2_000 if backend == "triton" and _triton.INTERPRETED else 20_000  # programs take it a while
    ids = (torch.rand(count, dtype=torch.float64) * math.log(words)).exp().long() - 1
    check_rows(backend, ids, (2,), words, torch.tensor(0.5))


@every
@settings(max_examples=25, deadline=None)
@given(
    ids=st.lists(
        st.one_of(st.integers(-2, 12), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**32 + 3, -(2**31), 2**31])),
        max_size=70,
    ),
    width=st.sampled_from([(), (3,)]),
)
def test_ids_outside_the_table_are_never_written(backend, ids, width):
    """The table lies within a larger buffer, whose other parts keep their bits; the norm leaves such rows out too."""
    guard, words = 16, 10
    device = torch.empty(0).device
    buffers = [torch.arange(2 * guard + words, device=device).float().view(-1, *[1] * len(width)) + torch.ones(width)
               for _ in range(2)]  # fmt: skip
    before = [buffer.clone() for buffer in buffers]
    table, sums = (buffer[guard:-guard] for buffer in buffers)
    given_ids = torch.tensor(ids, dtype=torch.long)
    rows = torch.rand(len(ids), *width) + 1
    inside = (given_ids >= 0) & (given_ids < words)
    gradient, touched = merged(given_ids[inside], rows[inside], words)
    adagrad_rows_(table, sums, given_ids, rows, 0.2, backend=backend)
    for buffer, old in zip(buffers, before, strict=True):
        assert torch.equal(buffer[:guard], old[:guard])
        assert torch.equal(buffer[-guard:], old[-guard:])
        assert torch.equal(buffer[guard:-guard][~touched], old[guard:-guard][~touched])
    assert_close("a", sums[touched], (before[1][guard:-guard] + gradient**2)[touched])
    norm = merged_square_norm(given_ids, rows, words, backend=backend)
    assert_close("norm", norm / (1 + gradient.square().sum()), gradient.square().sum() / (1 + gradient.square().sum()))


@triton
def test_an_order_of_nonsense_reads_no_address_outside(backend):
    """Positions outside the rows count as zero, and ids outside the table are left out."""
    table, sums, rows = torch.zeros(4, 2), torch.ones(4, 2), torch.ones(5, 2)
    order = RowOrder(torch.tensor([-(2**62), 1, 1, 2, 2**62]), torch.tensor([0, -1, 2**62, 5, 3]))
    adagrad_rows_(table, sums, torch.zeros(5, dtype=torch.long), rows, 0.2, order=order, backend=backend)
    assert torch.equal(sums, torch.ones(4, 2))
    assert not table.any()
    assert merged_square_norm(torch.zeros(5, dtype=torch.long), rows, 4, order=order, backend=backend) == 0


def test_an_order_sorts_and_keeps_equal_ids_in_their_order():
    order = row_order(torch.tensor([7, 2**40, 3, -9, 7, 3]), 10)
    assert order.ids.tolist() == [-1, 3, 3, 7, 7, 10]
    assert order.positions.tolist() == [3, 2, 5, 0, 4, 1]
    assert order.ids.dtype == torch.int32
    assert row_order(torch.tensor([2**31]), 2**32).ids.tolist() == [2**31]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"table": torch.ones(()), "accumulator": torch.ones(())}, r"table must be \[V, D\] or \[V\]"),
        ({"accumulator": torch.ones(5)}, "accumulator shaped like it"),
        ({"ids": torch.ones(2)}, "ids must be int64 or int32"),
        ({"rows": torch.ones(3, 3)}, r"rows must have shape \(2, 3\), one row per id"),
        ({"order": RowOrder(torch.ones(3, dtype=torch.long), torch.ones(2, dtype=torch.long))}, "order.ids must be"),
        ({"order": RowOrder(torch.ones(2, dtype=torch.long), torch.ones(2))}, "order.positions must be int64"),
    ],
)
def test_bad_row_arguments_are_refused(change, expected):
    arguments = {
        "table": torch.ones(5, 3),
        "accumulator": torch.ones(5, 3),
        "ids": torch.tensor([0, 1]),
        "rows": torch.ones(2, 3),
        "learning_rate": 0.1,
    }
    with pytest.raises(ElmoFastError, match=expected):
        adagrad_rows_(**arguments | change)
