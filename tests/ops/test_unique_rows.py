"""unique_rows, ordered_unique_rows and gather_rows: their contracts on every backend, collisions, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import RowOrder, _triton, gather_rows, ordered_unique_rows, unique_rows
from elmo_fast.ops._table_rows import table_rows
from tests.support.backends import backends, device_of
from tests.support.tolerances import assert_no_worse

BACKENDS = backends("unique_rows", reference=True)
TRITON = [p for p in BACKENDS if p.values == ("triton",)]


def words(rows: int, columns: int = 50, distinct: int = 7, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    table = torch.randint(0, 262, (distinct, columns), dtype=dtype)
    return table[torch.randint(0, distinct, (rows,))]


def assert_contract(ids: torch.Tensor, backend: str) -> torch.Tensor:
    unique, inverse = unique_rows(ids, backend=backend)
    assert unique.dtype == ids.dtype
    assert inverse.dtype == torch.int64
    assert torch.equal(unique[inverse], ids)
    assert len({tuple(row) for row in unique.tolist()}) == len(unique) == len({tuple(row) for row in ids.tolist()})
    assert_padded_contract(ids, backend)
    return unique


def assert_padded_contract(ids: torch.Tensor, backend: str) -> None:
    unique, inverse, count, _ = ordered_unique_rows(ids, backend=backend)
    assert unique.shape == ids.shape
    assert unique.dtype == ids.dtype
    assert inverse.dtype == count.dtype == torch.int64
    assert count.shape == ()
    described = ordered_unique_rows(ids.to("meta"), backend="reference")[:3]
    assert [(each.shape, each.dtype) for each in described] == [
        (each.shape, each.dtype) for each in (unique, inverse, count)
    ]
    number = int(count)
    assert torch.equal(unique[inverse], ids)
    assert not unique[number:].any()
    assert len({tuple(row) for row in unique[:number].tolist()}) == number == len({tuple(r) for r in ids.tolist()})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [
        *((*shape, torch.int64) for shape in ((0, 50), (1, 50), (3, 1), (129, 50), (129, 3), (1000, 2))),
        (129, 50, torch.int32),
    ],
)
def test_rows_are_rebuilt_and_distinct(backend: str, rows: int, columns: int, dtype: torch.dtype) -> None:
    assert_contract(words(rows, columns, dtype=dtype), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_slot_counts(backend: str) -> None:
    """Rows that differ in one slot only, whichever it is, stay apart, as do rows that permute each other."""
    ids = torch.cat([torch.zeros(1, 50, dtype=torch.int64), torch.eye(50, dtype=torch.int64)]).repeat(3, 1)
    assert len(assert_contract(ids, backend)) == 51


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_views(backend: str) -> None:
    assert_contract(words(40, 50)[::3, 1::2], backend)
    assert_contract(words(40, 50).t(), backend)


def test_the_reference_keeps_the_order_of_first_occurrence() -> None:
    ids = torch.tensor([[5, 5], [1, 2], [5, 5], [0, 9], [1, 2]])
    unique, inverse = unique_rows(ids, backend="reference")
    assert unique.tolist() == [[5, 5], [1, 2], [0, 9]]
    assert inverse.tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("backend", TRITON)
@pytest.mark.parametrize("bits", [0, 1, 3])
def test_rows_whose_hashes_collide_are_never_taken_for_one(backend: str, bits: int) -> None:
    """With a hash of 0 to 3 bits almost all words collide: repeats may slip through, a wrong row may not."""
    from elmo_fast.ops.unique_rows.kernels import _padded

    ids = words(200, 6, 40)
    unique, inverse, count, *_ = _padded(ids, bits)
    assert torch.equal(unique[inverse], ids)
    assert len({tuple(row) for row in ids.tolist()}) < int(count) < 200
    assert not unique[int(count) :].any()
    assert int(inverse.max()) == int(count) - 1


@pytest.mark.parametrize("backend", TRITON)
def test_a_hash_of_full_width_does_not_collide(backend: str) -> None:
    """1,000 different rows of small numbers keep 1,000 different keys."""
    from elmo_fast.ops.unique_rows.kernels import _padded

    ids = torch.stack(torch.meshgrid(torch.arange(20), torch.arange(25), torch.arange(2), indexing="ij"), -1)
    assert int(_padded(ids.reshape(-1, 3))[2]) == 1000
    assert int(_padded(ids.reshape(-1, 3).flip(1).repeat(2, 1))[2]) == 1000


@pytest.mark.parametrize("backend", TRITON)
def test_the_longest_words_come_first(backend: str) -> None:
    ids = torch.where(torch.arange(150) < torch.randint(1, 150, (50, 1)), torch.randint(1, 9, (50, 150)), 0)
    ids[:, 0] = torch.arange(50)
    unique, *_ = ordered_unique_rows(ids, backend=backend)
    changes = (unique != unique[:, -1:]).int() * torch.arange(1, 151)
    tails = changes.amax(1).clamp(max=127).tolist()
    assert tails == sorted(tails, reverse=True)


@pytest.mark.parametrize("backend", TRITON)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), max_size=12))
def test_any_numbers(backend: str, rows: list[list[int]]) -> None:
    """Negative and extreme ids are numbers like any other."""
    table = torch.tensor(rows, dtype=torch.int64, device=device_of(backend)).reshape(-1, 2)
    assert_padded_contract(table.repeat(2, 1), backend)


def gathered(backend: str, rows: int, entries: int, width: int, dtype: torch.dtype, hot: bool = False):
    generator = torch.Generator().manual_seed(3)
    table = torch.randn(entries, width, generator=generator, device="cpu").to(device_of(backend), dtype)
    inverse = torch.randint(0, max(1, entries // 2), (rows,))  # the upper half of the table is not named
    if hot:
        inverse[rows // 8 :] = entries - 1
    grad = torch.randn(rows, width, generator=generator, device="cpu").to(device_of(backend), dtype)
    out = gather_rows(table.requires_grad_(), inverse, backend=backend)
    out.backward(grad)
    return table, inverse, grad, out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("rows", "entries", "width", "hot"),
    [
        *((*shape, False) for shape in ((0, 4, 8), (1, 1, 1), (5, 9, 513), (130, 7, 33), (300, 300, 16))),
        (1000, 40, 20, True),
    ],
)
def test_gather_and_its_gradient(backend: str, rows: int, entries: int, width: int, hot: bool) -> None:
    """Segments of no row, of one, and longer than several chunks."""
    torch.manual_seed(5)
    table, inverse, grad, out = gathered(backend, rows, entries, width, torch.float32, hot)
    assert torch.equal(out, table[inverse])
    expected = torch.zeros(entries, width, dtype=torch.float64).index_add_(0, inverse, grad.double())
    plain = torch.zeros(entries, width).index_add_(0, inverse, grad)
    assert_no_worse("gradient of table", table.grad, plain, expected, "float32")
    named = torch.zeros(entries, dtype=torch.bool).index_fill_(0, inverse, True)
    assert not table.grad[~named].any()


@pytest.mark.parametrize("backend", TRITON)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 4), max_size=20))
def test_indices_outside_the_table_give_nan_and_touch_nothing(backend: str, indices: list[int]) -> None:
    device = device_of(backend)
    inverse = torch.tensor(indices, dtype=torch.int64, device=device)
    table = torch.arange(12.0, device=device).reshape(3, 4).requires_grad_()
    out = gather_rows(table, inverse, backend=backend)
    known = (inverse >= 0) & (inverse < 3)
    assert out[~known].isnan().all()
    assert torch.equal(out[known], table[inverse[known]])
    out.backward(torch.ones_like(out))
    expected = torch.stack([(inverse == i).sum() for i in range(3)]).float()
    assert torch.equal(table.grad, expected[:, None].expand(3, 4))


@pytest.mark.parametrize("backend", TRITON)
def test_opcheck_triton(backend: str) -> None:
    ops = getattr(torch.ops, _triton.NAMESPACE)
    torch.library.opcheck(ops.padded_unique_rows.default, (words(12, 5),))
    inverse = torch.randint(0, 6, (9,))
    for order in ((None, None), torch.sort(inverse, stable=True)):
        torch.library.opcheck(ops.gather_rows.default, (torch.randn(6, 5, requires_grad=True), inverse, *order, 6))
        torch.library.opcheck(ops.gather_rows_backward.default, (torch.randn(9, 5), inverse, *order, 6))


@pytest.mark.parametrize("backend", TRITON)
def test_the_order_of_distinct_rows_spares_the_gradient_a_sort(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a gradient that sorts; an order of nonsense reads no address outside."""
    sort, sorts = torch.sort, []
    for ids in (words(70, 9, distinct=3), torch.zeros(70, 3, dtype=torch.int64), words(1, 9)):
        table, seeds = torch.randn(len(ids), 33, requires_grad=True), torch.randn(len(ids), 33)
        _, inverse, _, order = ordered_unique_rows(ids, backend=backend)
        assert order is not None
        assert all(map(torch.equal, order, sort(inverse, stable=True)))
        rows = [gather_rows(table, inverse, order=each, backend=backend) for each in (None, order)]
        with monkeypatch.context() as patch:
            patch.setattr(
                torch, "sort", lambda *arguments, **options: (sorts.append(arguments), sort(*arguments, **options))[1]
            )
            (expected,) = torch.autograd.grad(rows[0], table, seeds)
            assert len(sorts) == 1
            assert torch.equal(*torch.autograd.grad(rows[1], table, seeds), expected)
            assert len(sorts) == 1
            sorts.clear()
    far = RowOrder(order.ids - 2**40, order.positions + 2**40)
    torch.autograd.grad(gather_rows(table, inverse, order=far, backend=backend), table, seeds)


def test_an_order_of_another_shape_is_refused() -> None:
    table, inverse = torch.randn(3, 2), torch.tensor([0, 2])
    with pytest.raises(ElmoFastError, match=r"order.positions must have shape \[N=2\]"):
        gather_rows(table, inverse, order=RowOrder(inverse, inverse[:1]))


@pytest.mark.parametrize("backend", TRITON)
def test_the_static_path_compiles_to_one_graph(backend: str) -> None:
    def there_and_back(ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        unique, inverse, *_ = ordered_unique_rows(ids, backend=backend)
        return gather_rows(unique.float() * scale, inverse, backend=backend)

    ids, scale = words(30, 10), torch.full((), 2.0, requires_grad=True)
    out = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")(ids, scale)
    assert torch.equal(out, ids * 2.0)
    (grad,) = torch.autograd.grad(out.sum(), scale)
    assert grad == ids.sum()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(4, 5), "ids must be int64 or int32"),
        (torch.zeros(4, 0, dtype=torch.int64), "at least one column"),
    ],
)
def test_errors_name_the_argument(ids: torch.Tensor, message: str) -> None:
    for op in (unique_rows, ordered_unique_rows):
        with pytest.raises(ElmoFastError, match=message):
            op(ids)


@pytest.mark.parametrize(
    ("table", "inverse", "message"),
    [
        (torch.zeros(4, 2), torch.zeros(2, dtype=torch.int32), "inverse must be int64"),
        (torch.zeros(4, 2), torch.zeros(2, 1, dtype=torch.int64), r"inverse must have shape \[N\]"),
        (torch.zeros(4, 2), torch.zeros(2, dtype=torch.int64, device="meta"), "must be on one device"),
    ],
)
def test_errors_of_gather_name_the_argument(table: torch.Tensor, inverse: torch.Tensor, message: str) -> None:
    with pytest.raises(ElmoFastError, match=message):
        gather_rows(table, inverse)


@pytest.mark.parametrize("backend", backends("unique_rows", reference=True))
def test_a_table_without_rows(backend: str) -> None:
    """A table without rows: only no rows can be taken."""
    device = device_of(backend)
    table, none = torch.zeros(0, 3, device=device, requires_grad=True), torch.zeros(0, dtype=torch.int64, device=device)
    rows = gather_rows(table, none, backend=backend)
    assert rows.shape == (0, 3)
    assert torch.autograd.grad(rows.sum(), table)[0].shape == (0, 3)
    with pytest.raises(ElmoFastError, match=r"inverse must be empty, as table has no rows; got shape \(2,\), int64"):
        gather_rows(table, none.new_zeros(2), backend=backend)


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("index", [4, -1])
def test_an_index_outside_the_table_is_an_error_on_the_cpu(index: int, width: int) -> None:
    """An error of one type and in our words, whichever kernel torch's index_select uses."""
    for table in (
        torch.zeros(4, width),
        torch.zeros(width, 4).t(),
        torch.zeros(4, 2 * width, dtype=torch.float64)[:, ::2],
    ):
        with pytest.raises(IndexError, match=f"inverse must lie from 0 to 3; got .*{index}"):
            gather_rows(table, torch.tensor([1, index]))


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_have_the_same_bits_on_any_number_of_threads(sparse):
    """Dense as AdamW's, and sparse, of words that repeat often; torch's index_put gives other bits from run to run."""
    generator, before = torch.Generator().manual_seed(0), torch.get_num_threads()
    ids = torch.randint(0, 300, (4000,), generator=generator)
    grad = torch.randn(4000, 64, generator=generator)
    actual = []
    torch.use_deterministic_algorithms(False)  # as users have it: with it torch adds on one thread
    try:
        for threads in (1, *[4] * 20):
            torch.set_num_threads(threads)
            table = torch.zeros(300, 64, requires_grad=True)
            table_rows(table, ids, sparse).backward(grad)
            actual.append(table.grad.to_dense())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, actual[0]) for each in actual[1:])
