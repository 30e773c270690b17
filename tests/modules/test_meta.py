"""The device "meta": shapes come out, and whatever is not in the state_dict is there again when values are."""

import pytest
import torch

from elmo_fast import BiLM, Elmo
from elmo_fast.modules.losses import FullSoftmaxLoss, SampledSoftmaxLoss
from elmo_fast.static import Vectors
from elmo_fast.tasks.features import StaticFeatures
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES

WORDS = ["<pad>", "The", "cat", "sat"]


def emptied(model):
    """Return the model after to_empty: memory with any content, the sentence marks' included."""
    model = model.to("meta").to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(7)
    return model


@pytest.mark.parametrize("way", [emptied, lambda model: model.to_empty(device="cpu")], ids=["meta", "to_empty"])
def test_a_model_emptied_and_loaded_again_gives_the_same(files, way):
    """Nothing but the state_dict is needed."""
    paths = files()
    model, ids = Elmo(*paths, 1, dropout=0, stateful=False), batch_to_ids(BATCHES[0])
    expected, weights = (
        model(ids)["elmo_representations"][0].clone(),
        {k: v.clone() for k, v in model.state_dict().items()},
    )
    model = way(model)
    model.load_state_dict(weights)
    assert torch.equal(model(ids)["elmo_representations"][0], expected)


@pytest.mark.parametrize("from_files", [True, False])
def test_a_model_made_on_meta_takes_a_state_by_assignment(files, from_files):
    paths = files()
    model, ids = Elmo(*paths, 1, dropout=0), batch_to_ids(BATCHES[0])
    with torch.device("meta"):
        other = Elmo(*(paths if from_files else (model._elmo_lstm.options, None)), 1, dropout=0)
    assert {tensor.device.type for tensor in [*other.parameters(), *other.buffers()]} == {"meta"}
    assert other(ids.to("meta"))["elmo_representations"][0].is_meta
    other.load_state_dict(model.state_dict(), assign=True)
    for _ in range(2):  # no state of meta, and afterwards one is carried
        expected = model(ids)["elmo_representations"][0]
        assert torch.equal(other(ids)["elmo_representations"][0], expected)


def test_vectors_of_the_marks_beside_a_cached_vocabulary_come_back(files):
    """They are made of the weights again, whether lost on meta, in to_empty, or never there."""
    paths, words = files(), torch.tensor([[1, 2, 3], [2, 0, 0]])
    ids = torch.zeros(2, 3, 50, dtype=torch.int64)
    model = BiLM(*paths, vocab_to_cache=WORDS, stateful=False)
    expected, weights = torch.stack(model(ids, words)["activations"]), dict(model.state_dict())
    with torch.device("meta"):
        model = BiLM(*paths, vocab_to_cache=WORDS, stateful=False)
    assert model(ids.to("meta"), words.to("meta"))["activations"][0].is_meta
    model.load_state_dict(weights, assign=True)
    loaded = emptied(BiLM(*paths, vocab_to_cache=WORDS, stateful=False))
    loaded.load_state_dict(weights)
    for other in (model, loaded):
        assert torch.equal(torch.stack(other(ids, words)["activations"]), expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"words": 9}], ids=["characters", "words"])
def test_shapes_on_meta_are_those_of_the_cpu(files, options, training):
    model = BiLM(*files(**options), requires_grad=training)
    if options:
        ids = torch.tensor([[1, 2, 3], [4, 0, 0]])
        model.encoder.vocabulary = vocabulary(9)
    else:
        ids = batch_to_ids([["a", "b", "c"], ["d"]])
    expected = model(ids)
    before = model._elmo_lstm._states
    actual = model.to("meta")(ids.to("meta"))
    assert model._elmo_lstm._states is before
    assert actual["mask"].shape == expected["mask"].shape
    for a, b in zip(actual["activations"], expected["activations"], strict=True):
        assert (a.shape, a.dtype, a.is_meta) == (b.shape, b.dtype, True)
    if training:
        sum(layer.sum() for layer in actual["activations"]).backward()
        assert all(p.grad.shape == p.shape for p in model._elmo_lstm.parameters())


def vocabulary(size):
    from elmo_fast.text import Vocabulary

    return Vocabulary(["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(size - 3))])


@pytest.mark.parametrize(
    "loss",
    [FullSoftmaxLoss(9, 4), SampledSoftmaxLoss(9, 4, 3)],
    ids=["full", "sampled"],
)
def test_losses_on_meta(loss):
    """A shape, and gradients."""
    loss = loss.to("meta")
    actual = loss(torch.randn(5, 4, device="meta"), torch.arange(5, device="meta"))
    assert (actual.shape, actual.is_meta) == ((), True)
    actual.backward()


def test_static_features_keep_their_frozen_table():
    """It is not in their state_dict."""
    features = StaticFeatures(Vectors(["a", "b"], torch.ones(2, 3).numpy()))
    weights = features.state_dict()
    features = features.to("meta").to_empty(device="cpu")
    features.load_state_dict(weights)
    assert features([["a", "c"]])[0].tolist() == [[1, 1, 1]] * 2
