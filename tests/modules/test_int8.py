"""precision="int8" in the modules: vectors near those of float32; what has gradients refuses it."""

import re
import types

import numpy as np
import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder, SampledSoftmaxLoss, batch_to_ids
from elmo_fast.cli.main import main
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.tasks import load_task, train_task
from tests.modules.conftest import BATCHES
from tests.support.weights import make_weights
from tests.tasks.toy import silent, toy_config

IDS = batch_to_ids(BATCHES[0])


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_vectors_point_where_float32s_do(files, layer):
    """One sentence without a state: an error of at most 2 % of the layer's size, and nearly its direction."""
    exact, rounded = (
        ElmoEmbedder(*files(cell=256, proj=64, seed=1), stateful=False, precision=precision).embed_sentence(
            BATCHES[0][0]
        )[layer]
        for precision in ("float32", "int8")
    )
    assert 1e-4 < np.sqrt(((exact - rounded) ** 2).mean() / (exact**2).mean()) < 0.02
    assert ((exact * rounded).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)).min() > 0.9995


def test_a_mix_over_a_frozen_bilm_is_trained(files):
    model = Elmo(*files(), 1, stateful=False, dropout=0.0, precision="int8")
    model(IDS)["elmo_representations"][0].sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_a_bilm_that_is_trained_is_refused(files):
    model = Elmo(*files(), 1, requires_grad=True, stateful=False, precision="int8")
    with pytest.raises(ElmoFastError, match=r'^precision="int8" is for inference and has no gradients'):
        model(IDS)
    with torch.no_grad():
        model(IDS)


def test_a_loss_refuses_it_and_a_language_model_keeps_it_to_the_bilm(files):
    from elmo_fast.checkpoints import load_checkpoint

    with pytest.raises(ElmoFastError, match="precision must be one of float32, bfloat16, float16; got 'int8'"):
        SampledSoftmaxLoss(10, 4, 2, precision="int8")
    state, options = load_checkpoint(None, *files(softmax=9), None)
    model = LanguageModel.from_checkpoint(options, state, precision="int8")
    assert model.loss.precision == "float32"


@pytest.fixture
def two_gpus(monkeypatch):
    """A torch that sees two GPUs, to which tensors are moved in name alone."""
    on_gpu = types.SimpleNamespace(device=torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *arguments: on_gpu)


ON_CPUS = "precision=int8 runs on CPUs only; got the device cuda(:[01])?: {}, or precision=bfloat16"


def test_on_a_gpu_int8_says_at_once_what_to_do(two_gpus, tmp_path):
    make_weights(tmp_path)
    with pytest.raises(ElmoFastError, match=ON_CPUS.format("give cuda_device=-1")):
        ElmoEmbedder.from_pretrained(tmp_path / "absent", 0, precision="int8")
    with pytest.raises(ElmoFastError, match=ON_CPUS.format("give device=cpu")):
        TokenVectors(tmp_path, device="cuda:1", precision="int8")
    config = toy_config(tmp_path, elmo="input", precision="int8", epochs=1)
    with pytest.raises(ElmoFastError, match=ON_CPUS.format("give device=cpu")):
        train_task(config, silent, device="cuda")
    train_task(config, silent)
    with pytest.raises(ElmoFastError, match=ON_CPUS.format("give device=cpu")):
        load_task(config.save_dir, "cuda")


def test_a_command_in_int8_takes_the_cpu_and_says_so(two_gpus, tmp_path, capsys):
    """Of a trained task too, whose precision its folder has; where a GPU was named, that is an error."""
    config = toy_config(tmp_path, elmo="input", precision="int8", epochs=1)
    train_task(config, silent)
    (tmp_path / "text.txt").write_text("the cat\n", encoding="utf-8")
    embed = ["embed", f"{tmp_path}/text.txt", f"{tmp_path}/out.npz", "--model", config.model, "--precision", "int8"]
    for words in (embed, ["task", "eval", config.save_dir, config.test_path]):
        assert main(words) == 0
        assert "--device cpu, as int8 runs on CPUs only" in capsys.readouterr().err
        assert main([*words, "--device", "cuda"]) == 2
        assert re.search("int8 runs on CPUs only; got the device cuda: give --device cpu, or", capsys.readouterr().err)
