"""Held-out perplexity against a float64 computation that shares no code with it."""

import itertools
import types

import h5py
import numpy as np
import pytest
import torch

from elmo_fast.checkpoints import load_checkpoint
from elmo_fast.corpus import encode
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _graphs
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.text import Vocabulary
from tests.ops.graph_cases import DEVICE, needs_graphs, with_memory
from tests.pretrain.toy import SENTENCES, toy_config, toy_corpus, toy_model
from tests.support.bilm_numpy import BOS, BOW, EOS, EOW, BilmNumpy
from tests.support.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", ".", "bird"]
TEXT = [sentence.split() for sentence in SENTENCES]
MARKERS = {"<S>": [BOW, BOS, EOW], "</S>": [BOW, EOS, EOW]}


def round_forget_biases(weight_file):
    """Makes `bias + 1`, which readers store in float32, exact, so that float64 can be compared with float64."""
    with h5py.File(weight_file, "r+") as file:
        for way, layer in itertools.product(range(2), range(2)):
            bias = file[f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/B"]
            bias[...] = np.round(bias[...] * 4096) / 4096


def oracle_losses(files, rows):
    """The loss of every position, [2, N] float64: docs/pretraining.md's stream in file order, one numpy LSTM step per
    word, the softmax over all words."""
    model = BilmNumpy(*files)
    table, bias = model.weights["softmax/W"], model.weights["softmax/b"]
    skip, layers = model.options["lstm"]["use_skip_connections"], model.options["lstm"]["n_layers"]
    stream = [None, *itertools.chain.from_iterable([*sentence, None] for sentence in TEXT)]
    count = len(stream) - 1
    shares = [count // rows + (row < count % rows) for row in range(rows)]
    ends = np.cumsum(shares).tolist()
    losses = np.full((2, count), np.nan)
    for way, row in itertools.product((0, 1), range(rows)):
        begin, end = ends[row] - shares[row], ends[row]
        for place in range(begin, end)[:: -1 if way else 1]:
            pair = stream[place : place + 2][:: -1 if way else 1]
            read, following = (marker if word is None else word for word, marker in zip(pair, sides(way), strict=True))
            x = model.token_vector(MARKERS.get(read) or model.characters(read))
            for layer in range(layers):
                m = model._step(way, layer, row, x)
                x = m + x if layer and skip else m
            logits = table @ x + bias
            target = WORDS.index(following) if following in WORDS else WORDS.index("<UNK>")
            losses[way, place] = np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target]
    return losses


def sides(way):
    """Ids of a boundary as input and as target."""
    return ("</S>", "<S>") if way else ("<S>", "</S>")


def by_sentence(losses):
    """Sums over each sentence's words and end."""
    ends = np.cumsum([len(sentence) + 1 for sentence in TEXT])
    return np.stack([part.sum(1) for part in np.split(losses, ends[:-1], axis=1)], axis=1)


def load_model(*files):
    state, options = load_checkpoint(None, *files)
    return LanguageModel.from_checkpoint(options, state)


@pytest.fixture
def files(tmp_path):
    files = make_weights(tmp_path, softmax=len(WORDS), scale=2.0, cell_clip=0.7, proj_clip=0.5)
    round_forget_biases(files[1])
    return files


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(("rows", "unroll_steps"), [(1, 20), (2, 3), (4, 1), (5, 4)])
def test_equals_float64_numpy_and_counts_every_word_once(tmp_path, skip, rows, unroll_steps):
    """Order, carried state, clips, whole softmax, mean, and the sums of each sentence."""
    files = make_weights(tmp_path, softmax=len(WORDS), skip=skip, scale=2.0, cell_clip=0.7, proj_clip=0.5)
    round_forget_biases(files[1])
    model = load_model(*files).double()
    corpus = encode([[], *TEXT[:2], [], *TEXT[2:]], Vocabulary(WORDS))
    settings = {"batch_size": rows, "unroll_steps": unroll_steps}
    got = evaluate(model, corpus, per_sentence=True, **settings)
    expected = oracle_losses(files, rows)
    forward, backward = expected.mean(1)
    assert got.words == expected.shape[1] == sum(len(s) + 1 for s in TEXT)
    assert got.forward_loss == pytest.approx(forward, rel=1e-10)
    assert got.backward_loss == pytest.approx(backward, rel=1e-10)
    assert got.forward == pytest.approx(np.exp(forward), rel=1e-9)
    assert got.mean == pytest.approx(np.exp((forward + backward) / 2), rel=1e-9)
    np.testing.assert_allclose(got.sentences, by_sentence(expected), rtol=1e-10)
    assert evaluate(model, corpus, **settings) == got
    assert evaluate(model, corpus, **settings).sentences is None


def test_float32_is_close_to_float64_in_at_most_as_many_rows_as_sentences(files):
    model, corpus, lines = load_model(*files), encode(TEXT, Vocabulary(WORDS)), []
    got = evaluate(model, corpus, batch_size=1000, unroll_steps=4, per_sentence=True, progress=lines.append)
    np.testing.assert_allclose(got.sentences, by_sentence(oracle_losses(files, len(TEXT))), rtol=1e-4)
    assert sum(lines) == corpus.positions, "progress is told of every word once"


@pytest.mark.parametrize("size", [2, 7])
def test_processes_that_share_the_rows_sum_up_to_the_same(files, size):
    """Each alone gives its part; 7 processes are more than there are rows."""
    model, corpus = load_model(*files).double(), encode(TEXT, Vocabulary(WORDS))
    settings = {"batch_size": 5, "unroll_steps": 3, "per_sentence": True}
    parts = [
        evaluate(model, corpus, processes=types.SimpleNamespace(rank=rank, size=size, sum_=lambda x: x), **settings)
        for rank in range(size)
    ]
    whole = evaluate(model, corpus, **settings)
    assert sum(part.forward_loss for part in parts) == pytest.approx(whole.forward_loss, rel=1e-12)
    assert sum(part.backward_loss for part in parts) == pytest.approx(whole.backward_loss, rel=1e-12)
    np.testing.assert_allclose(sum(part.sentences for part in parts), whole.sentences, rtol=1e-12)


def test_dropout_is_off_and_the_mode_is_restored():
    corpus = toy_corpus()
    model = toy_model(toy_config(dropout=0.5), corpus).train()
    assert evaluate(model, corpus) == evaluate(model, corpus)
    assert model.training
    assert all(p.grad is None for p in model.parameters())

    def stop(words):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(model, corpus, progress=stop)
    assert model.training


def test_another_vocabulary_no_words_or_no_softmax_is_refused(tmp_path):
    corpus = toy_corpus()
    model = toy_model(toy_config(), corpus)
    with pytest.raises(ElmoFastError, match=r"vocabulary must have the \d+ words"):
        evaluate(model, encode(TEXT, Vocabulary(WORDS)))
    with pytest.raises(ElmoFastError, match="batch_size must be 1 or more; got 0"):
        evaluate(model, corpus, batch_size=0)
    with pytest.raises(ElmoFastError, match="no words"):
        evaluate(model, encode([[]], corpus.vocabulary))
    with pytest.raises(ElmoFastError, match="no softmax weights"):
        load_model(*make_weights(tmp_path))


@needs_graphs
def test_graphs_do_not_outlive_an_evaluation_if_memory_is_short(seen, monkeypatch):
    """Training has their memory again."""
    with_memory(monkeypatch, lambda: 1000)
    graphs = _graphs.Graphs(2)
    for _ in range(2):
        graphs.run(
            "a",
            0,
            DEVICE,
            lambda x: (x + 1,),
            [((1,), torch.float32)],
            lambda memory: None,
            lambda entry: entry.replay(),
        )
    assert len(graphs) == 1
    corpus = toy_corpus()
    evaluate(toy_model(toy_config(backend="reference"), corpus).to(DEVICE), corpus, batch_size=2)
    assert len(graphs) == 0
