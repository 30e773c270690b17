"""adagrad: dense updates and updates of rows in place, norms and the clip, against float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    _triton,
    adagrad_,
    adagrad_rows_,
    clip_scale,
    merged_square_norm,
    row_order,
    square_norm,
)
from elmo_fast.ops.adagrad import RowOrder
from tests.kernels.launch import recording
from tests.support.backends import backends
from tests.support.tolerances import assert_close, assert_no_worse

every = pytest.mark.parametrize("backend", backends("adagrad", reference=True))


triton = pytest.mark.parametrize("backend", [p for p in backends("adagrad") if p.values == ("triton",)])


NO_NUMBER = [math.nan, math.inf, -math.inf]


# More than two launches hold; empty, of one element, a whole block, one more, one less, several blocks.
SHAPES = [
    (3,), (70, 40), (1024,), (1,), (0, 5), (2500,), (2048,), (1025,), (1023,), (3, 3, 3),
    (5,), (8200,), (16,), (7, 11), (4, 256), (31,), (33,), (9000,), (2,),
]  # fmt: skip


def tensors(shapes=SHAPES):
    """Weights, accumulators above zero and gradients, of rising size, so that no two slots look alike."""
    lists = [[torch.randn(shape) * (1 + k) for k, shape in enumerate(shapes)] for _ in range(3)]
    return lists[0], [0.5 + sums.square() for sums in lists[1]], lists[2]


def written_out(weights, sums, gradients, learning_rate, scale=1.0):
    """a += (s g)², w -= lr s g / √a, tensor by tensor."""
    sums = [a + (scale * g) ** 2 for a, g in zip(sums, gradients, strict=True)]
    weights = [w - learning_rate * scale * g / a.sqrt() for w, a, g in zip(weights, sums, gradients, strict=True)]
    return weights, sums


WIDTHS = [(), (1,), (5,), (33,), (200,), (513,), (2, 3)]


def fewer(width):
    """(rows, words): wide rows take the interpreter long."""
    return (333, 90) if math.prod(width) < 10 else (200, 12)


def repeated(count, words, longest):
    """Ids in disorder, half of them one word, so that its segment is longer than one program adds."""
    ids = torch.randint(0, words, (count,))
    ids[: min(longest, count)] = words // 2
    return ids[torch.randperm(count)]


def merged(ids, rows, words):
    """The dense gradient of a table, and the rows it touches."""
    dense = torch.zeros(words, *rows.shape[1:], dtype=rows.dtype).index_add_(0, ids.long(), rows)
    return dense, torch.zeros(words, dtype=torch.bool).index_fill_(0, ids.long(), True)


def copies(tensors, dtype=torch.float32):
    return [tensor.detach().to(dtype, copy=True) for tensor in tensors]


def check_update(backend, weights, sums, gradients, learning_rate, scale):
    """One update, no worse than the formula in float32 against that in float64; gradients are as before."""
    factor = 1.0 if scale is None else scale.item()
    truth = written_out(*(copies(each, torch.float64) for each in (weights, sums, gradients)), learning_rate, factor)
    plain = written_out(weights, sums, gradients, learning_rate, factor)
    before = copies(gradients)
    adagrad_(weights, sums, gradients, learning_rate, scale, backend=backend)
    for name, actual, torchs, expected in zip("wa", (weights, sums), plain, truth, strict=True):
        for k, each in enumerate(zip(actual, torchs, expected, strict=True)):
            assert_no_worse(f"{name}{k}", *each, "float32")
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))


@every
@pytest.mark.parametrize("scale", [None, 0.3])
def test_dense_updates(backend, scale):
    """Several steps in a row on tensors of all sizes."""
    weights, sums, _ = tensors()
    for _ in range(2):
        gradients = tensors()[2]
        check_update(backend, weights, sums, gradients, 0.2, None if scale is None else torch.tensor(scale))


@every
@pytest.mark.parametrize("scale", NO_NUMBER)
def test_a_scale_that_is_no_number_changes_nothing(backend, scale):
    """Of dense tensors and of rows, whatever the gradients are: this is how a step is skipped."""
    weights, sums, gradients = tensors(shapes=[(40, 33), (5,)])
    before, ids = copies([*weights, *sums]), torch.tensor([3, 1, 3])
    for factor in (1.0, scale):
        changed = [gradient * factor for gradient in gradients]
        adagrad_(weights, sums, changed, 0.2, torch.tensor(scale), backend=backend)
        adagrad_rows_(weights[0], sums[0], ids, changed[0][:3], 0.2, torch.tensor(scale), backend=backend)
    assert all(torch.equal(a, b) for a, b in zip([*weights, *sums], before, strict=True))


@every
def test_a_learning_rate_in_a_tensor_gives_the_same_bits(backend):
    """Read at each call, in float32 as the number is; of dense tensors and of rows."""
    actual = []
    for in_tensor in (False, True):
        torch.manual_seed(0)
        weights, sums, gradients = tensors(shapes=[(40, 33), (5,)])
        rate = torch.full((), 0.7)
        for number in (0.2, 0.05):
            step_size = rate.fill_(number) if in_tensor else number
            adagrad_(weights, sums, gradients, step_size, torch.tensor(0.3), backend=backend)
            adagrad_rows_(weights[0], sums[0], torch.tensor([3, 1, 3]), gradients[0][:3], step_size, backend=backend)
        actual.append([*weights, *sums])
    assert all(torch.equal(a, b) for a, b in zip(*actual, strict=True))


@pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
def test_a_learning_rate_in_a_tensor_runs_the_kernels_of_a_number():
    """Kernels are loaded by the first, eager step: a driver may refuse to load one within a captured one."""
    actual = []
    for rate in (0.2, torch.tensor(0.2)):
        weights, sums, gradients = tensors(shapes=[(40, 33), (5,)])
        with recording() as launches:
            adagrad_(weights, sums, gradients, rate, torch.tensor(0.3), backend="triton")
            adagrad_rows_(weights[0], sums[0], torch.tensor([3, 1]), gradients[0][:2], rate, backend="triton")
        kinds = [(each.kernel, list(map(type, each.arguments)), each.constants) for each in launches]
        actual.append(kinds)
    assert len(actual[0]) == 3
    assert actual[0] == actual[1]


@every
def test_strided_gradients_and_few_tensors(backend):
    weights, sums, _ = tensors(shapes=[(40, 70)])
    check_update(backend, weights, sums, [torch.randn(70, 40).t()], 0.1, torch.tensor(2.0))
    check_update(backend, weights, sums, [torch.randn(40, 140)[:, ::2]], 0.1, None)
    check_update(backend, weights, sums, [torch.randn(70).expand(40, 70)], 0.1, None)
    adagrad_([], [], [], 0.1, backend=backend)
    if backend != "triton":
        check_update(backend, [torch.randn(70, 40).t()], sums, [torch.randn(40, 70)], 0.1, None)
        check_update(backend, weights, [torch.rand(70, 40).t() + 1], [torch.randn(40, 70)], 0.1, None)
    check_update(backend, [torch.ones(0, 3)], [torch.ones(0, 3)], [torch.ones(0, 3)], 0.1, None)


@every
@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 8191])
def test_nothing_around_a_tensor_is_written_or_counted(backend, size):
    """Weight, sum and gradient lie within larger buffers, whose other parts keep their bits and are not in the norm."""
    buffers = [torch.full((16 + size + 16,), 3.0) for _ in range(3)]
    weight, sums, gradient = (buffer[16:-16] for buffer in buffers)
    adagrad_([weight], [sums], [gradient], 0.5, backend=backend)
    for buffer in buffers[:2]:
        assert (buffer[:16] == 3).all()
        assert (buffer[-16:] == 3).all()
        assert (buffer[16:-16] != 3).all()
    assert square_norm([gradient], backend=backend).item() == pytest.approx(9 * size, rel=1e-6)


@every
def test_large_and_small_gradients(backend):
    """If g is huge the step is the learning rate; if it is tiny it is lr g / √a and `a` does not move."""
    gradients = [torch.tensor([1e18, -1e18, 1e-18, -1e-30, 0.0, -0.0])]
    weights, sums = [torch.zeros(6)], [torch.ones(6)]
    adagrad_(weights, sums, gradients, 0.5, backend=backend)
    assert_close("w", weights[0][:2], torch.tensor([-0.5, 0.5]))
    torch.testing.assert_close(weights[0][2:], torch.tensor([-5e-19, 5e-31, 0.0, 0.0]), atol=0, rtol=1e-5)
    assert sums[0][2:].tolist() == [1.0] * 4


native = pytest.mark.parametrize("backend", [p for p in backends("adagrad") if p.values == ("native",)])


@every
def test_versions_count_up(backend):
    """So that autograd and cached copies see that a tensor was written."""
    weights, sums, gradients = tensors(shapes=[(6, 2), (3,)])
    adagrad_(weights, sums, gradients, 0.2, backend=backend)
    assert all(tensor._version for tensor in weights + sums)
    table, accumulator = torch.ones(6, 2), torch.ones(6, 2)
    adagrad_rows_(table, accumulator, torch.tensor([1]), torch.ones(1, 2), 0.2, backend=backend)
    assert table._version
    assert accumulator._version
    leaf = torch.nn.Parameter(torch.ones(3))
    product = leaf * leaf
    adagrad_([leaf], [torch.ones(3)], [torch.ones(3)], 0.2, backend=backend)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@triton
def test_opcheck(backend):
    ops = getattr(torch.ops, _triton.NAMESPACE)
    weights, sums, gradients = tensors(shapes=[(30, 7), (5,)])
    scale, rate = torch.tensor(0.5), torch.tensor(0.3)
    for each in (None, scale):
        torch.library.opcheck(ops.adagrad_.default, (weights, sums, gradients, rate, each))
    ids = torch.randint(0, 30, (40,))
    rows, order = torch.randn(40, 7), row_order(ids, 30)
    torch.library.opcheck(ops.adagrad_rows_.default, (weights[0], sums[0], *order, rows, rate, scale))
    torch.library.opcheck(ops.square_norm.default, (gradients,))
    torch.library.opcheck(ops.merged_square_norm.default, (*order, rows, 30))


@native
def test_opcheck_of_native(backend):
    ops = torch.ops.elmo_fast
    weights, sums, _ = tensors(shapes=[(30, 7)])
    rate = torch.tensor(0.2)
    for scale in (None, torch.tensor(0.5)):
        arguments = weights[0], sums[0], torch.tensor([2, 7, 29]), None, torch.randn(3, 7), rate, scale
        torch.library.opcheck(ops.adagrad_rows_.default, arguments)


@triton
def test_compiles_without_a_break(backend):
    """Norm, clip and both updates in one graph."""

    def f(weight, sums, gradient, table, accumulator, ids, rows):
        square = square_norm([gradient], backend=backend) + merged_square_norm(ids, rows, 30, backend=backend)
        scale = clip_scale(square.sqrt(), 1.0)
        adagrad_([weight], [sums], [gradient * 2], 0.2, scale, backend=backend)
        adagrad_rows_(table, accumulator, ids, rows, 0.2, scale, backend=backend)
        return square

    arguments = [torch.randn(50), torch.ones(50), torch.randn(50), torch.randn(30, 4), torch.ones(30, 4)]
    arguments += [torch.randint(0, 30, (40,)), torch.randn(40, 4)]
    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        mine = [tensor.clone() for tensor in arguments]
        results.append([g(*mine), *mine])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@triton
def test_only_contiguous_tensors_are_written_in_place(backend):
    weight, sums = torch.ones(3, 4).t(), torch.ones(4, 3)
    with pytest.raises(ElmoFastError, match=r"parameters must be contiguous.*strides \(1, 4\)"):
        adagrad_([weight], [sums], [torch.ones(4, 3)], 0.2, backend=backend)
    with pytest.raises(ElmoFastError, match="accumulators must be contiguous"):
        adagrad_([sums], [weight], [torch.ones(4, 3)], 0.2, backend=backend)
    with pytest.raises(ElmoFastError, match="table must be contiguous"):
        adagrad_rows_(weight, sums, torch.tensor([0]), torch.ones(1, 3), 0.2, backend=backend)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"accumulators": []}, "must have the same length; got 1, 0 and 1"),
        ({"accumulators": [torch.ones(3)]}, "accumulators must be shaped like parameters"),
        ({"gradients": [torch.ones(3, 2)]}, "gradients must be shaped like parameters"),
        ({"scale": torch.ones(1)}, r"scale must be one number, \[\], on cpu"),
        ({"scale": torch.ones((), dtype=torch.float64)}, "scale must be float32"),
        ({"learning_rate": torch.ones(1)}, r"learning_rate must be one number, \[\], on cpu"),
    ],
)
def test_bad_dense_arguments_are_refused(change, expected):
    arguments = {
        "parameters": [torch.ones(2, 3)],
        "accumulators": [torch.ones(2, 3)],
        "gradients": [torch.ones(2, 3)],
        "learning_rate": 0.1,
    }
    with pytest.raises(ElmoFastError, match=expected):
        adagrad_(**arguments | change)


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


@every
def test_square_norms(backend):
    """Many tensors, one element, nothing; strided; more partial sums than one program adds at a time."""
    gradients = tensors()[0]
    strided = [torch.randn(70, 40).t(), torch.randn(50)[::3]]
    for some in (gradients, gradients[3:4], gradients[4:5], strided):
        truth = torch.stack([g.double().square().sum() for g in some]).sum()
        plain = torch.stack([g.square().sum() for g in some]).sum()
        actual = square_norm(some, backend=backend)
        assert actual.dtype == torch.float32
        assert_no_worse("norm", actual, plain, truth, "float32")


@every
def test_a_norm_is_no_single_chain_of_sums(backend):
    """Alike numbers round alike: a chain of their squares, as torch.nn.utils.get_total_norm has, is far off here."""
    values = torch.full((2**15 + 3,), 0.1)
    truth = values.double().square().sum()
    rows = values[: 2**15].view(-1, 2**8)
    assert square_norm([values], backend=backend).item() == pytest.approx(truth.item(), rel=1e-6)
    assert merged_square_norm(torch.arange(128), rows, 128, backend=backend).item() == pytest.approx(
        rows.double().square().sum().item(), rel=1e-6
    )


@triton
def test_a_sum_of_many_partial_sums(backend, monkeypatch):
    """Nine partial sums, four at a time."""
    monkeypatch.setattr("elmo_fast.ops.adagrad.kernels.TOTAL_BLOCK", 4)
    values = torch.randn(9 * 8192 - 100)
    assert_close("norm", square_norm([values], backend=backend), values.double().square().sum(), "float32")


@triton
def test_partial_sums_are_added_in_float64(backend, monkeypatch):
    """Each of 32 ones, eight of them in the lane of 2^24, which as a float32 would take none."""
    monkeypatch.setattr("elmo_fast.ops.adagrad.kernels.TOTAL_BLOCK", 4)
    gradients = [torch.full((1,), 4096.0), *torch.ones(32, 1)]
    assert square_norm(gradients, backend=backend).item() == 2**24 + 32


@every
@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 333])
def test_merged_square_norms(backend, width, count):
    """The square norm of the dense gradient; with and without the order."""
    most, words = fewer(width)
    ids, rows = repeated(min(count, most), words, 160), torch.randn(min(count, most), *width)
    truth, plain = (merged(ids, rows.to(dtype), words)[0].square().sum() for dtype in (torch.float64, torch.float32))
    order = row_order(ids, words) if len(width) == 1 else None
    actual = merged_square_norm(ids, rows, words, order=order, backend=backend)
    assert_no_worse("norm", actual, plain, truth, "float32")


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@every
def test_norms_tell_what_is_not_finite(backend):
    for value in NO_NUMBER:
        rows = torch.ones(300, 3)
        rows[200, 1] = value
        assert not square_norm([torch.ones(5), rows], backend=backend).isfinite()
        assert not merged_square_norm(torch.arange(300) // 200, rows, 2, backend=backend).isfinite()
    assert not square_norm([torch.full((4,), 1e20)], backend=backend).isfinite()


def test_the_clip():
    """max_norm / max(norm, max_norm), 1 within, NaN where the norm is no number."""
    for norm, expected in ((20.0, 0.5), (10.0, 1.0), (1e-3, 1.0), (0.0, 1.0)):
        assert clip_scale(torch.tensor(norm), 10.0).item() == expected
    assert clip_scale(torch.tensor(2.0), 0.5).item() == 0.25
    assert all(clip_scale(torch.tensor(norm), 10.0).isnan() for norm in NO_NUMBER)
    with pytest.raises(ElmoFastError, match="max_norm must be above 0; got 0"):
        clip_scale(torch.tensor(1.0), 0.0)
