"""AdaGrad and the clip against plain dense formulas written out here."""

import pytest
import torch
from torch.nn import Parameter

from elmo_fast.pretrain.adagrad import AdaGrad, clip_by_global_norm


def sparse(ids: list[int], rows: torch.Tensor, size: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([ids]), rows, (size, *rows.shape[1:]), check_invariants=True)


def dense_adagrad(weight, accumulator, gradient, learning_rate):
    """The formula on everything: a += g²; w -= lr·g / √a."""
    accumulator = accumulator + gradient**2
    return weight - learning_rate * gradient / accumulator.sqrt(), accumulator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3), (7,)])
def test_several_steps_equal_the_dense_formula(dtype, shape):
    """Rows that repeat within a step are summed before squaring; rows that are absent do not move at all."""
    size = shape[0]
    start = torch.randn(shape, dtype=dtype)
    table, matrix = Parameter(start.clone()), Parameter(start.clone())
    optimiser = AdaGrad([table, matrix], learning_rate=0.3, initial_accumulator_value=0.5)
    weight, accumulator = start.clone(), torch.full(shape, 0.5, dtype=dtype)
    for ids in ([3, 1, 3, 3], [1], [4, 4, 0]):
        rows = torch.randn((len(ids), *shape[1:]), dtype=dtype)
        table.grad = sparse(ids, rows, size)
        matrix.grad = table.grad.to_dense()
        weight, accumulator = dense_adagrad(weight, accumulator, matrix.grad, 0.3)
        optimiser.step()
    torch.testing.assert_close(table.data, weight)
    torch.testing.assert_close(matrix.data, weight)
    torch.testing.assert_close(optimiser.state[table]["sum"], accumulator)
    assert torch.equal(table.data[2], start[2])
    assert torch.equal(optimiser.state[table]["sum"][2], torch.full(shape[1:], 0.5, dtype=dtype))


def test_gradients_of_two_uses_of_one_table_are_merged_before_squaring():
    """Both directions share the softmax table: their rows of one id make one update with (g1 + g2)²."""
    table = Parameter(torch.randn(4, 2))
    start = table.detach().clone()
    forward, backward = torch.randn(2, 2), torch.randn(2, 2)
    torch.nn.functional.embedding(torch.tensor([1, 2]), table, sparse=True).backward(forward)
    torch.nn.functional.embedding(torch.tensor([2, 3]), table, sparse=True).backward(backward)
    AdaGrad([table]).step()
    gradient = torch.stack([torch.zeros(2), forward[0], forward[1] + backward[0], backward[1]])
    wanted, _ = dense_adagrad(start, torch.ones(4, 2), gradient, 0.2)
    torch.testing.assert_close(table.data, wanted)


def test_gradients_survive_a_step_and_the_accumulator_is_in_the_state_dict():
    table, matrix = Parameter(torch.ones(3, 2)), Parameter(torch.ones(2))
    optimiser = AdaGrad([table, matrix])
    table.grad, matrix.grad = sparse([1], torch.ones(1, 2), 3), torch.ones(2)
    optimiser.step()
    assert table.grad is not None
    assert table.grad.is_sparse
    assert optimiser.state_dict()["state"][0]["sum"].tolist() == [[1, 1], [2, 2], [1, 1]]


def test_the_clip_is_over_everything_with_rows_merged():
    """norm = sqrt(3² + 4² + (1 + 1)² + 6²): both rows of id 1 are summed; the factor is clip / max(norm, clip)."""
    table, matrix = Parameter(torch.zeros(3, 1)), Parameter(torch.zeros(2))
    table.grad = sparse([1, 1, 2], torch.tensor([[1.0], [1.0], [6.0]]), 3)
    matrix.grad = torch.tensor([3.0, 4.0])
    norm = (9 + 16 + 4 + 36) ** 0.5
    assert clip_by_global_norm([table, matrix], 2.0) == pytest.approx(norm)
    torch.testing.assert_close(matrix.grad, torch.tensor([3.0, 4.0]) * 2 / norm)
    torch.testing.assert_close(table.grad.to_dense(), torch.tensor([[0.0], [2.0], [6.0]]) * 2 / norm)


def test_a_norm_within_the_clip_changes_nothing():
    matrix, unused = Parameter(torch.zeros(2)), Parameter(torch.zeros(2))
    matrix.grad = torch.tensor([3.0, 4.0])
    assert clip_by_global_norm([matrix, unused], 5.0) == pytest.approx(5.0)
    assert matrix.grad.tolist() == [3.0, 4.0]
    assert unused.grad is None
