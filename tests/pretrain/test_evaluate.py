"""Held-out perplexity against a float64 computation that shares no code with it."""

import itertools

import h5py
import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import load_model
from elmo_fast.pretrain.corpus import encode
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.text import Vocabulary
from tests.bilm_numpy import BOS, BOW, EOS, EOW, BilmNumpy
from tests.pretrain.toy import SENTENCES, toy_config, toy_corpus, toy_model
from tests.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", ".", "bird"]
TEXT = [sentence.split() for sentence in SENTENCES]


def round_forget_biases(weight_file):
    """Makes `bias + 1`, which readers store in float32, exact, so that float64 can be compared with float64."""
    with h5py.File(weight_file, "r+") as file:
        for way, layer in itertools.product(range(2), range(2)):
            bias = file[f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/B"]
            bias[...] = np.round(bias[...] * 4096) / 4096


def oracle_losses(files, direction, batch_size, unroll_steps):
    """Every target's loss: sentences dealt to rows as bilm-tf deals them, one numpy LSTM step per word."""
    model = BilmNumpy(*files)
    table, bias = model.weights["softmax/W"], model.weights["softmax/b"]
    skip = model.options["lstm"]["use_skip_connections"]
    markers = {"<S>": [BOW, BOS, EOW], "</S>": [BOW, EOS, EOW]}
    waiting = [["<S>", *s, "</S>"][:: -1 if direction else 1] for s in TEXT]
    rows = [[] for _ in range(batch_size)]
    losses = []
    while waiting or any(len(row) > 1 for row in rows):
        for b in range(batch_size):
            for _ in range(unroll_steps):
                if len(rows[b]) <= 1:
                    if not waiting:
                        break
                    rows[b] = waiting.pop(0)
                word, following = rows[b][:2]
                rows[b] = rows[b][1:]
                x = model.token_vector(markers.get(word) or model.characters(word))
                for layer in range(model.options["lstm"]["n_layers"]):
                    m = model._step(direction, layer, b, x)
                    x = m + x if layer and skip else m
                logits = table @ x + bias
                target = WORDS.index(following) if following in WORDS else WORDS.index("<UNK>")
                losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target])
    return losses


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(("batch_size", "unroll_steps", "chunk_bytes"), [(1, 20, 2**20), (2, 3, 64), (4, 1, 200)])
def test_equals_float64_numpy_and_counts_every_word_once(tmp_path, skip, batch_size, unroll_steps, chunk_bytes):
    files = make_weights(tmp_path, softmax=len(WORDS), skip=skip, scale=2.0, cell_clip=0.7, proj_clip=0.5)
    round_forget_biases(files[1])
    model = load_model(None, *files).double()
    corpus = encode(TEXT, Vocabulary(WORDS))
    got = evaluate(model, corpus, batch_size=batch_size, unroll_steps=unroll_steps, chunk_bytes=chunk_bytes)
    forward, backward = (oracle_losses(files, way, batch_size, unroll_steps) for way in (0, 1))
    assert got.words == len(forward) == len(backward) == sum(len(s) + 1 for s in TEXT)
    assert got.forward_loss == pytest.approx(np.mean(forward), rel=1e-10)
    assert got.backward_loss == pytest.approx(np.mean(backward), rel=1e-10)
    assert got.forward == pytest.approx(np.exp(np.mean(forward)), rel=1e-9)
    assert got.mean == pytest.approx(np.exp((np.mean(forward) + np.mean(backward)) / 2), rel=1e-9)


def test_dropout_is_off_and_the_mode_is_restored():
    corpus = toy_corpus()
    model = toy_model(toy_config(dropout=0.5), corpus).train()
    assert evaluate(model, corpus) == evaluate(model, corpus)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_an_untrained_model_is_about_as_good_as_guessing():
    corpus = toy_corpus()
    model = toy_model(toy_config(), corpus)
    torch.nn.init.zeros_(model.softmax_weight)
    assert evaluate(model, corpus).mean == pytest.approx(corpus.vocabulary_size, rel=1e-5)


def test_another_vocabulary_or_no_words_is_refused():
    corpus = toy_corpus()
    model = toy_model(toy_config(), corpus)
    with pytest.raises(ElmoFastError, match=r"vocabulary must have the \d+ words"):
        evaluate(model, encode(TEXT, Vocabulary(WORDS)))
    with pytest.raises(ElmoFastError, match="no words"):
        evaluate(model, encode([[]], Vocabulary(corpus.types[: corpus.vocabulary_size])))


def test_a_checkpoint_without_softmax_is_refused(tmp_path):
    with pytest.raises(ElmoFastError, match="no softmax weights"):
        load_model(None, *make_weights(tmp_path))
