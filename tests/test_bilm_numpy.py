"""The judge is judged: by AllenNLP's vectors, and what can be worked out by hand."""

import pathlib

import numpy as np

from tests.golden.make import BATCHES
from tests.support.bilm_numpy import BilmNumpy
from tests.support.weights import make_weights


def test_reproduces_allennlps_vectors_with_carried_state():
    """Without the carried state the second batch is far off: the comparison sees it."""
    folder = pathlib.Path(__file__).parent / "golden" / "allennlp"
    model = BilmNumpy(folder / "options.json", folder / "weights.hdf5")
    with np.load(folder / "vectors.npz") as file:
        for expected in (file["layers_0"], file["layers_1"]):
            actual, lengths = model.embed_with_boundaries(BATCHES[0] if model.states == {} else BATCHES[1])
            for row, length in enumerate(lengths):
                np.testing.assert_allclose(actual[:, row, :length], expected[:, row, :length], rtol=2e-6, atol=2e-6)
        model.reset()
        assert np.abs(model.embed_with_boundaries(BATCHES[1])[0][-1, 0] - expected[-1, 0]).max() > 0.01


def test_saturated_clips_are_seen_in_the_state(tmp_path):
    """Scaled weights drive cells and projections to their bounds; without a bound they pass it."""
    model = BilmNumpy(*make_weights(tmp_path, scale=8, cell_clip=0.5, proj_clip=0.7))
    model.embed([["one", "two", "three"]])
    cells = np.concatenate([c for c, _ in model.states.values()])
    outputs = np.concatenate([m for _, m in model.states.values()])
    assert np.abs(cells).max() == 0.5
    assert np.abs(outputs).max() == 0.7
    free = BilmNumpy(*make_weights(tmp_path / "free", scale=8, cell_clip=None, proj_clip=None))
    free.embed([["one", "two", "three"]])
    assert max(np.abs(m).max() for _, m in free.states.values()) > 0.7


def test_one_layer_by_hand(tmp_path):
    """One cell, one step, written out: gates i, j, f, o, the forget bias added, the projection clipped."""
    options, weights = make_weights(tmp_path, cell=2, proj=1, filters=((1, 1),), n_highway=0, layers=1, proj_clip=0.01)
    model = BilmNumpy(options, weights)
    model.states[0, 0, 0] = (np.array([0.4, -0.3]), np.array([0.2]))
    name = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
    w, b, p = (model.weights[f"{name}/{k}"] for k in ("W_0", "B", "W_P_0"))
    x = 0.5
    z = x * w[0] + 0.2 * w[1] + b
    sig = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    c = sig(z[4:6] + 1) * np.array([0.4, -0.3]) + sig(z[0:2]) * np.tanh(z[2:4])
    m = (sig(z[6:8]) * np.tanh(c)) @ p
    assert np.abs(m).max() > 0.01
    np.testing.assert_allclose(model._step(0, 0, 0, np.array([x])), np.clip(m, -0.01, 0.01), rtol=1e-12)
    np.testing.assert_allclose(model.states[0, 0, 0][0], c, rtol=1e-12)


def test_skip_connections_leave_the_recurrent_state_alone(tmp_path):
    """The outputs of layer 2 differ by its input; the states do not."""
    plain = BilmNumpy(*make_weights(tmp_path / "plain", skip=False))
    skip = BilmNumpy(*make_weights(tmp_path / "skip", skip=True))
    (a,), (b,) = plain.embed([["a", "b"]]), skip.embed([["a", "b"]])
    np.testing.assert_allclose(b[2], a[2] + a[1], rtol=1e-12)
    assert all(np.array_equal(plain.states[k][1], skip.states[k][1]) for k in plain.states)
