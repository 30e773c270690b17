"""What processes that train together tell each other."""

import pathlib
import warnings

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.processes import Processes, _store
from tests.pretrain.processes import torchrun


def test_three_processes_exchange_gradients_and_agree():
    """Rows of the union of all ids, dense buckets, the largest number, gathered rows, the leader's word and error."""
    status, output = torchrun(3, pathlib.Path(__file__).with_name("exchange_worker.py"))
    assert status == 0, output
    assert output.count("all held") == 1


def test_alone_nothing_is_exchanged():
    processes = Processes()
    table = torch.sparse_coo_tensor([[1, 1]], torch.ones(2, 3), (4, 3), check_invariants=True)
    assert (processes.rank, processes.size, processes.leads) == (0, 1, True)
    assert processes.sum_rows([table])[0] is table
    assert processes.gather(torch.ones(2), dim=0).tolist() == [1.0, 1.0]
    assert processes.run_on_leader(lambda: 5) == 5


@pytest.mark.parametrize(("size", "parts", "rows"), [(2, 1, 7), (3, 2, 9), (4, 1, 2)])
def test_rows_that_cannot_be_shared_out_are_refused(size, parts, rows):
    """The sentence names how many processes would do."""
    processes = Processes()
    processes.size = size
    with pytest.raises(ElmoFastError, match=rf"batch_size={rows} rows cannot be shared out evenly among {size} proc"):
        processes.assign_rows(rows, parts)


def test_the_sentence_names_the_numbers_that_fit():
    processes = Processes()
    processes.size = 5
    with pytest.raises(ElmoFastError, match="one of: 1, 2, 3, 6, or"):
        processes.assign_rows(12, 2)


def test_several_machines_are_warned_where_a_restart_would_find_old_addresses(monkeypatch):
    """Once a machine, and only where torchrun may restart and keeps the store; not where the store is new each time."""
    settings = {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "TORCHELASTIC_MAX_RESTARTS": "3"}
    for name, value in (settings | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).items():
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        assert _store() is None
    for name, value in (
        ("LOCAL_RANK", "1"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
    ):
        with monkeypatch.context() as changed, warnings.catch_warnings(action="error"):
            changed.setenv(name, value)
            assert _store() is None
