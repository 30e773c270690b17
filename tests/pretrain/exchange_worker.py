"""One of three processes of test_gradient_exchange.py: everything asserted here holds in each of them."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _graphs
from elmo_fast.pretrain.processes import Processes, join_processes
from elmo_fast.pretrain.step.gradient_exchange import GradientExchange, average_rows, wrap_in_ddp
from tests.ops.recorded_graph import Recorded
from tests.pretrain.sides import Side, check_equal, pretend


def tables():
    """The sparse gradients of three processes, ids unsorted, repeated, different in number."""
    generator = torch.Generator().manual_seed(0)
    ids = [[4, 1, 4], [0], [9, 1, 2, 9, 3]]
    rows = [torch.randn(len(each), 2, generator=generator) for each in ids]
    return [torch.sparse_coo_tensor([i], r, (10, 2), check_invariants=True) for i, r in zip(ids, rows, strict=True)]


def check_rows(processes: Processes) -> None:
    mine = tables()[processes.rank]
    total, twice = average_rows([mine, 2 * mine], processes)
    torch.testing.assert_close(twice.to_dense(), 2 * total.to_dense())
    assert total.is_coalesced()
    assert total.indices()[0].tolist() == [0, 1, 2, 3, 4, 9]
    wanted = sum(each.to_dense().double() for each in tables()) / 3
    torch.testing.assert_close(total.to_dense().double(), wanted, rtol=1e-6, atol=1e-6)


def check_dense(processes: Processes) -> None:
    """A module's gradients become the mean over the processes, a skipped exchange included."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    apart = torch.nn.Parameter(torch.zeros(4))
    wrapped = wrap_in_ddp(module, processes)
    inputs = torch.arange(18.0).reshape(3, 2, 3)
    with wrapped.no_sync():
        wrapped(inputs[processes.rank, :1]).sum().backward()
    (wrapped(inputs[processes.rank, 1:]).sum() + apart.sum() * (processes.rank + 1)).backward()
    GradientExchange(wrapped, [[apart]], processes, 1, overlapped=True).finish()
    torch.testing.assert_close(module.weight.grad, inputs.sum(dim=(0, 1)).expand(2, 3) / 3)
    torch.testing.assert_close(module.bias.grad, torch.full((2,), 2.0))
    assert apart.grad.tolist() == [2.0] * 4


def check_talk(processes: Processes) -> None:
    assert processes.assign_rows(12, 2) == (4 * processes.rank, 4)
    assert processes.max_([1, 0, 2][processes.rank]) == 2
    found = processes.gather(torch.full((2, 1), float(processes.rank)), dim=1)
    assert (found is None) == (not processes.leads)
    assert found is None or found.tolist() == [[0.0, 1.0, 2.0]] * 2
    assert processes.run_on_leader(lambda: f"from {processes.rank}") == "from 0"

    def fails():
        raise ElmoFastError("of the one that leads")

    with pytest.raises(ElmoFastError, match="of the one that leads"):
        processes.run_on_leader(fails)


def check_graphs(processes: Processes) -> None:
    """Steps whose gradients come of replayed graphs leave the bits of launched ones, with rows of tables; so does a
    process that cannot capture, among others that can. DDP's steps differ by the order of sums alone."""

    def refused(*given: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = Recorded()
    sides = Side(input="words"), Side(graphs, input="words"), Side(graphs, input="words")
    assert [side.step.exchange.overlapped for side in sides] == [True, False, False]
    sides[1].step.captured = None
    if processes.rank == 1:
        sides[2].step.captured.capturing = refused
    for side in sides:
        for number in range(4):
            side.take(number, 0, rate=0.2 / (number + 1), heard="ignore")
    check_equal(sides[1:])
    assert [each.times for each in graphs] == ([] if processes.rank == 1 else [2])
    torch.testing.assert_close(sides[0].model.state_dict(), sides[1].model.state_dict(), rtol=1e-4, atol=1e-6)


def check_some_cannot(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one process may not capture, all exchange as if none could."""
    monkeypatch.setattr(_graphs, "enabled", lambda device: processes.rank != 1)
    step = Side(Recorded()).step
    assert (step.captured, step.exchange.overlapped) == (None, True)


if __name__ == "__main__":
    with join_processes(torch.device("cpu")) as processes:
        assert processes.size == 3
        check_rows(processes)
        check_dense(processes)
        check_talk(processes)
        with pytest.MonkeyPatch.context() as monkeypatch:
            pretend(monkeypatch)
            check_graphs(processes)
            check_some_cannot(processes, monkeypatch)
        processes.max_(0)
        if processes.leads:
            print("all held")
