"""The biLM as it is trained: a stream per direction, dropout as bilm-tf's."""

import numpy as np
import torch

from elmo_fast.checkpoints import read_options
from elmo_fast.modules import BiLM
from elmo_fast.modules import bilm as bilm_module
from elmo_fast.text import batch_to_ids
from tests.bilm_numpy import BilmNumpy

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


def test_two_halves_equal_one_run_and_leave_the_carried_state_alone(files):
    bilm = BiLM(*files()).eval()
    ids = streams()
    whole, after = read(bilm, ids)
    state, parts = None, []
    for half in ids.split(6, dim=2):
        hidden, state = read(bilm, half, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, after, rtol=1e-5, atol=1e-6)
    assert bilm._elmo_lstm._states is None


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


def test_words_of_both_streams_are_encoded_once_together(files, monkeypatch):
    bilm = BiLM(*files(), cache_size=0)
    rows = []
    encode = bilm._token_embedder._encode
    monkeypatch.setattr(bilm._token_embedder, "_encode", lambda ids: (rows.append(len(ids)), encode(ids))[1])
    read(bilm, streams())
    assert rows == [len(set(WORDS))]
