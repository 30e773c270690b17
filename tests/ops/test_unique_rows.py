"""unique_rows: its contract on both backends, collisions, strides, and what the dispatcher knows of it."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import unique_rows

BACKENDS = ["reference", "native"]


def words(rows: int, columns: int = 50, distinct: int = 7, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    table = torch.randint(0, 262, (distinct, columns), dtype=dtype)
    return table[torch.randint(0, distinct, (rows,))]


def assert_contract(ids: torch.Tensor, backend: str) -> torch.Tensor:
    unique, inverse = unique_rows(ids, backend=backend)
    assert unique.dtype == ids.dtype
    assert inverse.dtype == torch.int64
    assert torch.equal(unique[inverse], ids)
    assert len({tuple(row) for row in unique.tolist()}) == len(unique) == len({tuple(row) for row in ids.tolist()})
    return unique


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(("rows", "columns"), [(0, 50), (1, 50), (3, 1), (129, 50), (129, 3), (1000, 2)])
def test_rows_are_rebuilt_and_distinct(backend: str, dtype: torch.dtype, rows: int, columns: int) -> None:
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


def test_native_keeps_the_order_of_first_occurrence() -> None:
    ids = torch.tensor([[5, 5], [1, 2], [5, 5], [0, 9], [1, 2]])
    unique, inverse = unique_rows(ids, backend="native")
    assert unique.tolist() == [[5, 5], [1, 2], [0, 9]]
    assert inverse.tolist() == [0, 1, 0, 2, 1]


def test_a_full_table_of_many_rows() -> None:
    """60,000 distinct rows and as many repeats: probing ends, and colliding hashes are told apart by comparison."""
    ids = torch.arange(60_000).view(-1, 1).expand(-1, 2) * torch.tensor([1, 7])
    unique, inverse = unique_rows(ids.repeat(2, 1), backend="native")
    assert torch.equal(unique, ids)
    assert torch.equal(inverse, torch.arange(60_000).repeat(2))


def test_opcheck() -> None:
    torch.library.opcheck(torch.ops.elmo_fast.unique_rows.default, (words(12, 5),))


def test_compiles_when_output_shapes_may_depend_on_values() -> None:
    ids = words(30, 10)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        unique, inverse = torch.compile(unique_rows, fullgraph=True, backend="aot_eager")(ids)
    assert torch.equal(unique[inverse], ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), r"ids must have shape \[N, C\]"),
        (torch.zeros(4, 5), "ids must be int64 or int32"),
        (torch.zeros(4, 0, dtype=torch.int64), "at least one column"),
    ],
)
def test_errors_name_the_argument(ids: torch.Tensor, message: str) -> None:
    with pytest.raises(ElmoFastError, match=message):
        unique_rows(ids)
