"""Devices that a machine lacks: the error names the argument, what is there, and what to do."""

import re

import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast._runtime.devices import device_named
from elmo_fast.cli.main import main
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.processes import local_device

TWO = r"must be a device that torch has on this machine; got 'cuda:{}'; give the CPU .*torch sees: 2, numbered from 0"


@pytest.fixture
def gpus(monkeypatch):
    """gpus(n): torch sees n GPUs."""

    def see(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return see


def test_a_gpu_beyond_the_last_is_told_by_its_argument(gpus, tmp_path, capsys):
    gpus(2)
    with pytest.raises(ElmoFastError, match=f"^cuda_device {TWO.format(5)}"):
        ElmoEmbedder.from_pretrained("mini", 5)
    (tmp_path / "text.txt").write_text("a\n", encoding="utf-8")
    words = ["embed", str(tmp_path / "text.txt"), str(tmp_path / "out.npz"), "--model", "mini"]
    for option, given in (("--cuda_device", "5"), ("--device", "cuda:5")):
        assert main([*words, option, given]) == 2
        assert re.search(f"error: {option} {TWO.format(5)}", capsys.readouterr().err)


def test_cuda_is_the_current_gpu_or_that_of_the_process(gpus, monkeypatch):
    """With its index, without which torch.cuda.set_device refuses it."""
    gpus(2)
    chosen = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert [local_device("cuda"), local_device("cuda:0")] == chosen == [torch.device("cuda:1"), torch.device("cuda:0")]
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "9", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    assert local_device("cuda") == chosen.pop() == torch.device("cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ElmoFastError, match=f"^device of process 2 of this machine {TWO.format(2)}"):
        local_device("cuda")


def test_without_a_gpu_the_error_says_how_to_get_one(gpus):
    gpus(0)
    none = "must be a device .*torch sees: 0, numbered from 0; a torch for the CPU sees none$"
    with pytest.raises(ElmoFastError, match=f"^cuda_device {none}"):
        ElmoEmbedder("absent.json", "absent.hdf5", 0)
    with pytest.raises(ElmoFastError, match=f"^device {none}"):
        TokenVectors("absent", device="cuda")


def test_a_device_that_this_torch_lacks_is_no_error_of_torch():
    for name in ("mps", "xpu"):
        with pytest.raises(ElmoFastError, match=f"^device must be a device that torch has .* got '{name}'; give"):
            device_named(name)
