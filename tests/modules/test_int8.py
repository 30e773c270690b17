"""precision="int8" in the modules: vectors near those of float32; what has gradients refuses it."""

import numpy as np
import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder, batch_to_ids
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import SampledSoftmaxLoss
from elmo_fast.pretrain.language_model import LanguageModel
from tests.modules.conftest import BATCHES

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
    with pytest.raises(
        ElmoFastError, match=r'requires_grad=True trains the biLM, and precision="int8" has no gradients'
    ):
        Elmo(*files(), 1, requires_grad=True, precision="int8")
    model = Elmo(*files(), 1, stateful=False, precision="int8").requires_grad_()
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
