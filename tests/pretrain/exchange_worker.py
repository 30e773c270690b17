"""One of three processes of test_gradient_exchange.py: everything asserted here holds in each of them."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.processes import Peers, joined
from elmo_fast.pretrain.step.gradient_exchange import mean_gradients, mean_rows, meaned_over_processes


def tables():
    """The sparse gradients of three processes, ids unsorted, repeated, different in number."""
    generator = torch.Generator().manual_seed(0)
    ids = [[4, 1, 4], [0], [9, 1, 2, 9, 3]]
    rows = [torch.randn(len(each), 2, generator=generator) for each in ids]
    return [torch.sparse_coo_tensor([i], r, (10, 2), check_invariants=True) for i, r in zip(ids, rows, strict=True)]


def check_rows(peers: Peers) -> None:
    mine = tables()[peers.rank]
    total, twice = mean_rows([mine, 2 * mine], peers)
    torch.testing.assert_close(twice.to_dense(), 2 * total.to_dense())
    assert total.is_coalesced()
    assert total.indices()[0].tolist() == [0, 1, 2, 3, 4, 9]
    wanted = sum(each.to_dense().double() for each in tables()) / 3
    torch.testing.assert_close(total.to_dense().double(), wanted, rtol=1e-6, atol=1e-6)


def check_dense(peers: Peers) -> None:
    """A module's gradients become the mean over the processes, a skipped exchange included."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    apart = torch.nn.Parameter(torch.zeros(4))
    wrapped = meaned_over_processes(module, peers)
    inputs = torch.arange(18.0).reshape(3, 2, 3)
    with wrapped.no_sync():
        wrapped(inputs[peers.rank, :1]).sum().backward()
    (wrapped(inputs[peers.rank, 1:]).sum() + apart.sum() * (peers.rank + 1)).backward()
    mean_gradients([apart], peers)
    torch.testing.assert_close(module.weight.grad, inputs.sum(dim=(0, 1)).expand(2, 3) / 3)
    torch.testing.assert_close(module.bias.grad, torch.full((2,), 2.0))
    assert apart.grad.tolist() == [2.0] * 4


def check_talk(peers: Peers) -> None:
    assert peers.share(12, 2) == (4 * peers.rank, 4)
    assert peers.largest([1, 0, 2][peers.rank]) == 2
    found = peers.gathered(torch.full((2, 1), float(peers.rank)), dim=1)
    assert (found is None) == (not peers.leads)
    assert found is None or found.tolist() == [[0.0, 1.0, 2.0]] * 2
    assert peers.led(lambda: f"from {peers.rank}") == "from 0"

    def fails():
        raise ElmoFastError("of the one that leads")

    with pytest.raises(ElmoFastError, match="of the one that leads"):
        peers.led(fails)


if __name__ == "__main__":
    with joined(torch.device("cpu")) as peers:
        assert peers.size == 3
        check_rows(peers)
        check_dense(peers)
        check_talk(peers)
        peers.wait()
        if peers.leads:
            print("all held")
