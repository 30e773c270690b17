"""Exchanges between processes that train together."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.exchange import Exchange, Table
from elmo_fast.pretrain.processes import Processes, join_processes
from tests.support.backends import trains_in_a_fork
from tests.torture.children import all_finish, fork_group


def tables():
    """The sparse gradients of three processes, ids unsorted, repeated, different in number."""
    generator = torch.Generator().manual_seed(0)
    ids = [[4, 1, 4], [0], [9, 1, 2, 9, 3]]
    rows = [torch.randn(len(each), 2, generator=generator) for each in ids]
    return [torch.sparse_coo_tensor([i], r, (10, 2), check_invariants=True) for i, r in zip(ids, rows, strict=True)]


def exchanged(processes, dense, tables, memory=None, at_once=True):
    """Sum the gradients over all processes, without a graph."""
    exchange = Exchange(processes, {} if memory is None else memory, at_once)
    for stage in (exchange.add(dense), exchange.start(), exchange.add([], tables), exchange.start(wait=True)):
        for act in stage:
            act()


def check_rows(processes: Processes, at_once: bool) -> None:
    """Rows of the union of all ids, in ascending order; on a GPU, as many as are possible, the rest of them V."""
    table, twice = torch.nn.Parameter(torch.zeros(10, 2)), torch.nn.Parameter(torch.zeros(10, 2))
    mine = tables()[0 if processes.rank == 0 else processes.rank]
    if not at_once:  # of one number in all processes
        mine = tables()[0]._indices()[0] + processes.rank, tables()[0]._values() * (processes.rank + 1)
        mine = torch.sparse_coo_tensor(mine[0][None], mine[1], (10, 2), check_invariants=True)
    whole = mine.to_dense().double()
    torch.distributed.all_reduce(whole)
    table.grad, twice.grad = (each.coalesce() if at_once else each for each in (mine, 2 * mine))
    exchanged(processes, [], [Table([table, twice], 7)], at_once=at_once)
    ids = [0, 1, 2, 3, 4, 9] if at_once else [1, 2, 3, 4, 5, 6, 10, 10, 10]
    assert table.grad.is_coalesced() == at_once
    for parameter, factor in ((table, 1), (twice, 2)):
        assert parameter.grad._indices()[0].tolist() == ids
        sums = torch.zeros(11, 2, dtype=torch.float64).index_put(
            (parameter.grad._indices()[0],), parameter.grad._values().double()
        )
        torch.testing.assert_close(sums[:10], factor * whole, rtol=1e-6, atol=1e-6)


def check_dense(processes: Processes) -> None:
    """A module's gradients become the sums over the processes, twice in a row; those of a table too, in place."""
    module, table, memory = torch.nn.Linear(3, 2), torch.nn.Parameter(torch.zeros(4)), {}
    inputs = torch.arange(18.0).reshape(3, 2, 3)
    for _ in range(2):
        module.zero_grad()
        table.grad = torch.full((4,), processes.rank + 1.0)
        module(inputs[processes.rank]).sum().backward()
        exchanged(processes, list(module.parameters()), [Table([table], 4)], memory)
        torch.testing.assert_close(module.weight.grad, inputs.sum(dim=(0, 1)).expand(2, 3))
        torch.testing.assert_close(module.bias.grad, torch.full((2,), 6.0))
        assert table.grad.tolist() == [6.0] * 4


def check_talk(processes: Processes) -> None:
    assert processes.assign_rows(12, 2) == (4 * processes.rank, 4)
    assert processes.max_([1, 0, 2][processes.rank]) == 2
    actual = processes.gather(torch.full((2, 1), float(processes.rank)), dim=1)
    assert (actual is None) == (not processes.leads)
    assert actual is None or actual.tolist() == [[0.0, 1.0, 2.0]] * 2
    assert processes.run_on_leader(lambda: f"from {processes.rank}") == "from 0"

    def fails():
        raise ElmoFastError("of the one that leads")

    with pytest.raises(ElmoFastError, match="of the one that leads"):
        processes.run_on_leader(fails)
    processes.check_same({"the weights": 1, "threads": processes.rank})
    with pytest.raises(ElmoFastError, match="not agree: the weights is 1 in process 1, 0 in process 0; start all"):
        processes.check_same({"the weights": processes.rank})


@trains_in_a_fork
def test_three_processes_exchange_gradients_and_agree(tmp_path):
    """All assertions of the functions above hold in each of three processes."""

    def member():
        with join_processes(torch.device("cpu")) as processes:
            assert processes.size == 3
            check_rows(processes, True)
            check_dense(processes)
            check_talk(processes)
            check_rows(processes, False)
            processes.max_(0)

    assert all_finish(fork_group(member, 3, tmp_path / "log"), tmp_path / "log")


def test_alone_nothing_is_exchanged():
    processes = Processes()
    table = torch.nn.Parameter(torch.zeros(4, 3))
    table.grad = gradient = torch.sparse_coo_tensor([[1, 1]], torch.ones(2, 3), (4, 3), check_invariants=True)
    exchanged(processes, [], [Table([table], 2)])
    assert (processes.rank, processes.size, processes.leads) == (0, 1, True)
    assert table.grad is gradient
    assert processes.gather(torch.ones(2), dim=0).tolist() == [1.0, 1.0]
    assert processes.run_on_leader(lambda: 5) == 5
