"""`elmo-fast check` as other commands know it: the reminder on a GPU where it has not passed."""

import pytest
import torch

from elmo_fast.cli import check
from elmo_fast.cli.main import main
from tests.cli.conftest import pair


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU in name, and an empty folder of what passed; its identity can be changed."""
    about = {"gpu": "Stand-in 1", "driver": "1.0"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(check, "identity", lambda device: about)
    return about


def test_a_gpu_is_unchecked_until_the_check_passes_and_after_a_new_driver(gpu):
    device = torch.device("cuda")
    message = "kernels are unchecked on this Stand-in 1: `elmo-fast check --device cuda` takes about a minute"
    assert check.reminder(device) == message
    assert check.reminder("cpu") is None
    check.remember(device, passed=True)
    assert check.reminder(device) is None
    gpu["driver"] = "2.0"
    assert check.reminder(device) == message
    gpu["driver"] = "1.0"
    assert check.reminder(device) is None
    check.remember(device, passed=False)
    assert check.reminder(device) == message


def test_embed_and_pretrain_remind_of_the_check(monkeypatch, toy, text, tmp_path):
    reminded = []
    monkeypatch.setattr(check, "remind", lambda device: reminded.append(str(device)))
    model = [*pair(toy), "-q"]
    assert main(["embed", text, str(tmp_path / "out.hdf5"), "--all", *model]) == 0
    assert main(["embed", text, str(tmp_path / "out"), "--all", "--shard", "0/1", *model]) == 0

    def pretrain(*arguments, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr("elmo_fast.pretrain.run.pretrain", pretrain)
    run = ["--train_prefix", text, "--save_dir", str(tmp_path / "run"), "--config", "tiny"]
    assert main(["pretrain", *run]) == 130
    assert reminded == ["cpu"] * 3
