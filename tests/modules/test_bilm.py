"""The biLM against bilm-tf and the float64 judge, in every variant of the file format, and as it is trained."""

import collections
import json
import pathlib
import sys

import h5py
import numpy as np
import pytest
import torch

import elmo_fast
from elmo_fast import BiLM, Elmo
from elmo_fast.checkpoints import read_options
from elmo_fast.checkpoints.state import state_shapes
from elmo_fast.errors import CheckpointError
from elmo_fast.modules import bilm as bilm_module
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES
from tests.support.bilm_numpy import BilmNumpy

PACKAGE = f"{pathlib.Path(elmo_fast.__file__).parent}/"  # a clone may hold torch too, in its own .venv

TOLERANCE = 2e-6
VARIANTS = {
    "skip": {},
    "no skip": {"skip": False},
    "three layers": {"layers": 3},
    "one layer": {"layers": 1},
    "tanh, one highway": {"activation": "tanh", "n_highway": 1},
    "no highway": {"n_highway": 0},
    "filters not projected": {"proj": 24, "cell": 32},
    "cells not projected": {"proj": 24, "cell": 24, "filters": ((1, 4), (2, 8))},
    "neither projected": {"proj": 24, "cell": 24},
    "clips saturated": {"cell_clip": 0.5, "proj_clip": 0.7},
    "no clips": {"scale": 0.5, "cell_clip": None, "proj_clip": None},
    "261 characters": {"n_characters": 261},
}


def vectors(bilm, batch):
    output = bilm(batch_to_ids(batch))
    return torch.stack(output["activations"]), output["mask"]


def test_bilm_tf_vectors(shared):
    """The top layer of 10 batches of 3 sentences, the state carried, as TensorFlow computed it."""
    folder = shared / "data/bilm_tf_fixture"
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    expected = [h5py.File(folder / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    bilm = BiLM(folder / "options.json", folder / "lm_weights.hdf5")
    for i in range(10):
        activations, _ = vectors(bilm, [sentences[i].split() for sentences in lists])
        for k in range(3):
            truth = np.concatenate(expected[k][str(i)][...], axis=-1)
            np.testing.assert_allclose(activations[-1, k, 1 : len(truth) + 1], truth, rtol=TOLERANCE, atol=TOLERANCE)


def in_float64(bilm, judge):
    """The model in float64, the 1 in its forget biases added there too, and not before they were rounded to float32."""
    bilm.double()
    for direction, layers in enumerate((bilm._elmo_lstm.forward_layers, bilm._elmo_lstm.backward_layers)):
        for layer, cell in enumerate(layers):
            stored = judge.weights[f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/B"].reshape(4, -1)
            with torch.no_grad():
                cell.state_linearity.bias.reshape(4, -1)[1] = torch.from_numpy(stored[2] + 1)
    return bilm


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "auto") for name in VARIANTS), ("skip", "reference"), ("no skip", "reference")]
)
def test_equals_the_judge_over_batches_of_changing_size(files, name, backend):
    """All layers and rows, markers and padding, through growing and shrinking batches: float32 2e-6, float64 1e-10."""
    options_file, weight_file = files(**(sizes := VARIANTS[name]))
    bilm, judge = BiLM(options_file, weight_file, backend=backend), BilmNumpy(options_file, weight_file)
    precise = in_float64(BiLM(options_file, weight_file, backend=backend), judge)
    for number, batch in enumerate([*BATCHES, *BATCHES]):
        activations, mask = vectors(bilm, batch)
        truth, lengths = judge.embed_with_boundaries(batch)
        assert mask.sum(dim=1).tolist() == lengths
        np.testing.assert_allclose(vectors(precise, batch)[0], truth, rtol=0, atol=1e-10)
        if number < len(BATCHES):  # rounding adds up in the state
            np.testing.assert_allclose(activations, truth, rtol=TOLERANCE, atol=TOLERANCE)
    if sizes.get("cell_clip"):
        assert max(np.abs(c).max() for c, _ in judge.states.values()) == sizes["cell_clip"]
        assert max(np.abs(m).max() for _, m in judge.states.values()) == sizes["proj_clip"]


def test_cached_words(files):
    """word_inputs give what the characters give; one outside the cache falls back to them; without a cache they do."""
    options_file, weight_file = files()
    words = ["@@PADDING@@", "The", "cat", "sat"]
    sentences = [["The", "cat", "sat"], ["sat", "The"], []]
    ids = batch_to_ids(sentences)
    indices = torch.tensor([[1, 2, 3], [3, 1, 0], [0, 0, 0]])
    reference = BiLM(options_file, weight_file)(ids)
    cached = BiLM(options_file, weight_file, vocab_to_cache=words)
    for word_inputs, characters in ((indices, torch.zeros_like(ids)), (indices + 3 * (indices > 0), ids)):
        cached.reset_states()
        output = cached(characters, word_inputs)
        assert torch.equal(output["mask"], reference["mask"])
        for actual, expected in zip(output["activations"], reference["activations"], strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    plain = BiLM(options_file, weight_file)(ids, indices)
    assert torch.equal(plain["activations"][2], reference["activations"][2])
    assert cached._word_embedding.weight.shape == (4, 8)
    assert not cached._word_embedding.weight.requires_grad
    assert "_word_embedding.weight" in cached.state_dict()
    assert BiLM(options_file, weight_file, True, words)._word_embedding.weight.requires_grad


def test_gradients_equal_differences(files):
    """The whole biLM in float64, one direction in the space of all parameters, against a central difference."""
    bilm = BiLM(*files(layers=2), requires_grad=True, stateful=False).double()
    ids = batch_to_ids(BATCHES[0])
    weights = torch.linspace(-1, 1, 16, dtype=torch.float64)

    def loss():
        return sum((layer * weights).sum() for layer in bilm(ids)["activations"])

    loss().backward()
    parameters = list(bilm.parameters())
    direction = [torch.randn_like(p) for p in parameters]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction, strict=True))
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for p, d in zip(parameters, direction, strict=True):
                p += step * d
            values.append(loss())
    torch.testing.assert_close(slope, (values[0] - values[1]) / 2e-6, rtol=1e-4, atol=1e-4)


def test_state_dict_loads_both_ways(files, tmp_path):
    """AllenNLP's names and shapes; a state_dict saved as AllenNLP's archives hold it is read back to equal outputs."""
    options_file, weight_file = files()
    bilm = BiLM(options_file, weight_file)
    state = bilm.state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == state_shapes(bilm.options, present=state)
    other = BiLM(read_options(options_file))
    assert not torch.equal(other.state_dict()["_elmo_lstm.forward_layer_0.state_projection.weight"], torch.zeros(8, 24))
    other.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    archive = tmp_path / "best.th"
    torch.save({f"text_field_embedder.token_embedder_elmo._elmo._elmo_lstm.{k}": v for k, v in state.items()}, archive)
    third = BiLM(options_file, archive)
    expected, _ = vectors(bilm, BATCHES[0])
    for model in (other, third):
        assert torch.equal(vectors(model, BATCHES[0])[0], expected)


def test_a_state_that_does_not_fit_is_named(files):
    options, state = read_options(files()[0]), BiLM(*files()).state_dict()
    last = list(state)[-1]
    for wrong, message in (
        ({last: state[last][:, :-1]}, r"state_projection.weight: wanted shape .8, 24., found .8, 23.$"),
        ({last: torch.full_like(state[last], torch.nan)}, "state_projection.weight: wanted finite numbers"),
        ({"_elmo_lstm.extra": torch.zeros(1)}, "extra: has no place"),
    ):
        with pytest.raises(CheckpointError, match=message):
            BiLM(options, state | wrong)


def test_new_parameters_follow_tensorflows_initialisers(files):
    """Without a weight_file: kernels Glorot-uniform, forget bias 1, skip connections and sizes from the options."""
    bilm = BiLM(read_options(files(skip=False)[0]), requires_grad=True)
    cell = bilm._elmo_lstm.forward_layers[1]
    bound = (6 / (8 + 8 + 96)) ** 0.5
    for linear in (cell.input_linearity, cell.state_linearity):
        assert 0.9 * bound < linear.weight.abs().max() <= bound
    assert 0.8 * (6 / 32) ** 0.5 < cell.state_projection.weight.abs().max() <= (6 / 32) ** 0.5
    assert cell.state_linearity.bias.tolist() == [0.0] * 24 + [1.0] * 24 + [0.0] * 48
    assert not bilm._elmo_lstm.use_skip_connections
    assert all(torch.isfinite(p).all() for p in bilm.parameters())


def test_a_warm_call_makes_few_python_calls():
    """The checks of a call look at all tensors together: two layers and twenty weights take fewer than 120 calls."""
    elmo, calls = Elmo.from_pretrained("mini").eval(), []
    ids = elmo.batch_to_ids([["the", "cat", "sat", "down"]])

    def count(frame, event, _):
        if frame.f_code.co_filename.startswith(PACKAGE) and event == "call":
            calls.append(frame.f_code.co_qualname)

    with torch.no_grad():
        elmo(ids)
        sys.setprofile(count)
        try:
            elmo(ids)
        finally:
            sys.setprofile(None)
    assert 100 < len(calls) < 120, collections.Counter(calls).most_common(5)


WORDS = ["<S>", "the", "cat", "sat", "</S>", "<S>", "the", "dog", "</S>", "<S>", "it"]


def streams(words=WORDS, rows=2):
    """Character ids of B rows of a forward stream, and of the same words read backwards: [2, B, T, C]."""
    forward = batch_to_ids([words[row:] + words[:row] for row in range(rows)])
    return torch.stack([forward, forward.flip(1)])


def read(bilm, ids, state=None):
    """The top layers [2, B, T, D] over the streams of `streams`, and the state."""
    return bilm.run_streams(bilm._token_embedder.encode(ids), state)


def test_hidden_states_equal_the_judge(files):
    """The backward stream is read in its own order; both directions start from zeros."""
    options_file, weight_file = files()
    bilm, judge = BiLM(options_file, weight_file).eval(), BilmNumpy(options_file, weight_file)
    ids = streams()
    (forward, backward), (h, c) = read(bilm, ids)
    tokens = bilm._token_embedder.encode(ids[0]).double().numpy()
    truth = judge.run_lstms(tokens, [len(WORDS)] * 2)[-1]
    np.testing.assert_allclose(forward, truth[..., :8], rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(backward.flip(1), truth[..., 8:], rtol=2e-6, atol=2e-6)
    for (direction, layer, row), (cell, projection) in judge.states.items():
        np.testing.assert_allclose(h[layer, direction, row], projection, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(c[layer, direction, row], cell, rtol=2e-6, atol=2e-6)


def test_gradients_reach_every_parameter_but_not_the_call_before(files):
    bilm = BiLM(read_options(files()[0]), requires_grad=True)
    state = None
    for _ in range(2):
        hidden, state = read(bilm, streams(), state)
        hidden.square().sum().backward()
        assert not state[0].requires_grad
    for name, parameter in bilm.named_parameters():
        assert parameter.grad.any(), name


def test_dropout_falls_where_bilm_tf_puts_it(files, monkeypatch):
    """On each layer's input, so that the residual adds the dropped input, and on the result; a mask per direction."""
    options_file, weight_file = files()
    bilm, judge = BiLM(options_file, weight_file).train(), BilmNumpy(options_file, weight_file)
    masks = []

    def dropout(x, p, training=True):
        assert p == 0.1
        masks.append((torch.rand(x.shape) > p).to(x.dtype) / (1 - p))
        return x * masks[-1]

    monkeypatch.setattr(bilm_module.F, "dropout", dropout)
    hidden, _ = read(bilm, streams())
    assert len(masks) == 2 * 2 + 2
    words = bilm._token_embedder.encode(streams()).double().numpy()
    for direction, top in enumerate(hidden):
        below = words[direction] * masks[direction].numpy()
        for layer in range(2):
            if layer:
                below = below * masks[2 + direction].numpy()
            above = np.zeros_like(below)
            for row in range(2):
                for t in range(len(WORDS)):
                    m = judge._step(direction, layer, row, below[row, t])
                    above[row, t] = m + below[row, t] if layer else m
            below = above
        np.testing.assert_allclose(top, below * masks[4 + direction].numpy(), rtol=3e-6, atol=3e-6)
