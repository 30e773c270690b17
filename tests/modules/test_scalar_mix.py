"""Scalar mixes as modules: several at once, fixed ones, refusals; tests/ops has the formula."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ScalarMix
from elmo_fast.modules.scalar_mix import mixes


def test_several_mixes_in_one_pass_equal_one_by_one():
    layers = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(3)]
    modules = [ScalarMix(3), ScalarMix(3, initial_scalar_parameters=[1.0, -2.0, 0.5])]
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
