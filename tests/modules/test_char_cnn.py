"""CharCNN and Highway without the options of an ELMo: formulas in plain torch, gradients, precisions, refusals."""

import pytest
import torch
from torch.nn import functional as F

from elmo_fast import CharacterEncoder, CharCNN, Highway, batch_to_ids
from elmo_fast.checkpoints import CharCnnOptions, ElmoOptions, LstmOptions

FILTERS = ((1, 4), (3, 8))


def highway_of(module, x):
    """The formula, in float64."""
    for layer in module._layers:
        p = F.linear(x, layer.weight.double(), layer.bias.double())
        transform, gate = p[..., : x.shape[-1]].relu(), p[..., x.shape[-1] :].sigmoid()
        x = gate * x + (1 - gate) * transform
    p = module._projection
    return x if p is None else F.linear(x, p.weight.double(), p.bias.double())


@pytest.mark.parametrize(("layers", "projection"), [(1, None), (2, 5), (0, 5)])
def test_highway_is_its_formula(layers, projection):
    module, x = Highway(8, layers, projection), torch.randn(2, 3, 8, requires_grad=True)
    y, expected = module(x), highway_of(module, x.double())
    assert y.shape == (2, 3, projection or 8)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-6)
    leaves = [x, *module.parameters()]
    for actual, wanted in zip(
        torch.autograd.grad(y.sin().sum(), leaves), torch.autograd.grad(expected.sin().sum(), leaves), strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5)


def test_it_is_the_encoder_of_an_elmo():
    """With its parameters, CharCNN gives the vectors of CharacterEncoder, and both start with equal ones."""
    options = ElmoOptions(
        lstm=LstmOptions(dim=8, projection_dim=5),
        char_cnn=CharCnnOptions(filters=FILTERS, embedding_dim=6, n_highway=2),
    )
    torch.manual_seed(0)
    encoder = CharacterEncoder(options)
    torch.manual_seed(0)
    module = CharCNN(FILTERS, 6, 2, 5)
    with torch.no_grad():
        module.embedding.weight[0] = 0  # padding
    for name, theirs in encoder.state_dict().items():
        if "_projection" not in name and "_char_embedding" not in name:
            names = name.replace("char_conv_", "convolutions.").replace("_highways.", "highway.")
            assert torch.equal(module.state_dict()[names], theirs), name
    ids = batch_to_ids([["a", "cat"]])
    with torch.no_grad():
        module.embedding.weight[: len(encoder._char_embedding_weights)].copy_(encoder._char_embedding_weights)
        torch.testing.assert_close(module(ids), encoder(ids)["token_embedding"][:, 1:-1])
