"""Scalar mixes: the formula in float64 numpy, both statistics of the layer normalisation, several mixes at once."""

import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ScalarMix
from elmo_fast.modules.scalar_mix import mixes


def filled(**settings):
    mix = ScalarMix(3, **settings)
    for k in range(3):
        mix.scalar_parameters[k].data[0] = 0.1 * (k + 1)
    mix.gamma.data[0] = 0.5
    return mix


def truth_of(layers, counted=None):
    weights = np.exp([0.1, 0.2, 0.3]) / np.exp([0.1, 0.2, 0.3]).sum()
    total = 0
    for weight, layer in zip(weights, layers, strict=True):
        x = layer.double().numpy()
        if counted is not None:
            x = (x - x[counted].mean()) / np.sqrt(x[counted].var() + 1e-12)
        total = total + weight * x
    return 0.5 * total


def test_the_formula_and_its_beginning():
    layers = [torch.randn(3, 4, 5) for _ in range(3)]
    np.testing.assert_allclose(filled()(layers).detach(), truth_of(layers), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ScalarMix(3)(layers), sum(layers) / 3)
    assert {n: tuple(p.shape) for n, p in ScalarMix(2).named_parameters()} == {
        "gamma": (1,),
        "scalar_parameters.0": (1,),
        "scalar_parameters.1": (1,),
    }


def test_several_mixes_in_one_pass_equal_one_by_one():
    layers = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(3)]
    modules = [filled(), ScalarMix(3, initial_scalar_parameters=[1.0, -2.0, 0.5])]
    together = mixes(modules, layers, None)
    for k, module in enumerate(modules):
        torch.testing.assert_close(together[k], module(layers))
    together.square().sum().backward()
    for parameter in [*modules[0].parameters(), *modules[1].parameters(), *layers]:
        assert parameter.grad.any()


def test_fixed_parameters():
    mix = ScalarMix(3, initial_scalar_parameters=[-9e10, 1, -9e10], trainable=False)
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    torch.testing.assert_close(mix(layers), layers[1])
    assert not any(p.requires_grad for p in mix.parameters())


def test_refusals():
    with pytest.raises(ElmoFastError, match="mixture_size=3 layers; got 5"):
        ScalarMix(3)([torch.randn(1, 2, 3)] * 5)
    with pytest.raises(ElmoFastError, match="mixture_size=3 numbers; got 2"):
        ScalarMix(3, initial_scalar_parameters=[1.0, 2.0])
    with pytest.raises(ElmoFastError, match="needs the mask"):
        ScalarMix(1, do_layer_norm=True)([torch.randn(1, 2, 3)])
    with pytest.raises(ElmoFastError, match="statistics must be one of allennlp, bilm"):
        ScalarMix(3, statistics="tensorflow")
