"""Weights that are written past torch's version counter, cast, or replaced by a quantizer."""

import warnings

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.modules import BiLM, Elmo
from elmo_fast.ops import _dispatch
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES

IDS = batch_to_ids(BATCHES[0])


def through_data(weight):
    weight.data.view(-1)[unprobed(weight)] += 3


def through_numpy(weight):
    weight.detach().numpy().reshape(-1)[unprobed(weight).numpy()] += 3


def unprobed(weight):
    """The places that neither probe looks at: 256 spread evenly, and every one of 64 equal strides' first."""
    count = weight.numel()
    places = torch.ones(count, dtype=torch.bool)
    places[torch.arange(256) * (count - 1) // 255] = False
    places[:: max(count // 64, 1)] = False
    return places


@pytest.mark.parametrize("write", [through_data, through_numpy])
@pytest.mark.parametrize("name", ["_token_embedder._projection", "_elmo_lstm.forward_layer_1.state_linearity"])
def test_refresh_weights_shows_what_was_written_past_the_counter(files, write, name):
    """Bit-equal to a module that was made with these weights; words kept across batches are forgotten too."""
    model = BiLM(*files(cell=40, proj=16, filters=((1, 8), (2, 24), (3, 40))), stateful=False)
    before = torch.stack(model(IDS)["activations"])
    write(model.get_submodule(name).weight)
    ops.refresh_weights()
    other = BiLM(model.options, model.state_dict(), stateful=False)
    after = torch.stack(model(IDS)["activations"])
    assert torch.equal(after, torch.stack(other(IDS)["activations"]))
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("cast", ["half", "bfloat16"])
def test_a_cast_module_is_slower_and_told_of_precision(files, cast):
    model = getattr(Elmo(*files(layers=1), 1, stateful=False).eval(), cast)()
    _dispatch.warn_once.cache_clear()
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    with pytest.warns(PerformanceWarning, match=f'keep them in float32 and pass precision="{name}"'):
        model(IDS)
    _dispatch.warn_once.cache_clear()


@pytest.mark.parametrize("part", [lambda elmo: elmo, lambda elmo: elmo._elmo_lstm._elmo_lstm], ids=["Elmo", "ElmoLstm"])
def test_a_quantizer_is_refused_in_one_sentence(files, part):
    """torch.ao.quantization puts layers whose weight is no tensor in the place of torch.nn.Linear."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao.quantization is deprecated, and says so
        model = Elmo(*files(layers=1), 1, stateful=False).eval()
        model = torch.ao.quantization.quantize_dynamic(part(model), {torch.nn.Linear})
    inputs = (IDS,) if isinstance(model, Elmo) else (torch.zeros(1, 2, 8), torch.ones(1, 2))
    with pytest.raises(ElmoFastError, match=r'cannot quantize a layer of elmo_fast.*precision="int8"'):
        model(*inputs)
