"""Features: tables of vectors, characters, mixes of ELMo's layers live, cached and fine-tuned, and their penalty."""

import numpy as np
import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import Vectors
from elmo_fast.tasks import CharacterFeatures, ElmoFeatures, Example, StaticFeatures, cached_layers, load_bilm
from elmo_fast.tasks.features import dropout
from elmo_fast.text import batch_to_ids, words_to_ids
from tests.support.tolerances import assert_close

SENTENCES = [["the", "Fox", "ran"], ["zygote"], ["the", "fox"]]


def some_vectors(words=("the", "fox", "US", "us"), width=5):
    return Vectors(list(words), np.random.default_rng(0).normal(size=(len(words), width)).astype(np.float32))


def test_words_are_looked_up_as_written_then_in_lower_case():
    """Fox is fox's row; US keeps its own, different from us; the rest have the unknown row, padding zeros."""
    vectors = some_vectors()
    features = StaticFeatures(vectors)
    out = features([["Fox", "US", "us", "zygote"], ["the"]])
    assert out.shape == (2, 4, 5)
    np.testing.assert_array_equal(out[0, :3].detach(), vectors.matrix[1:])
    np.testing.assert_allclose(out[0, 3].detach(), vectors.matrix.mean(0), rtol=1e-6)
    assert not out[1, 1:].any()
    assert features.get_output_dim() == 5


def test_what_of_the_table_is_trained():
    """The unknown row always; the rows of a frozen table never, nor are they in its state_dict; padding never."""
    frozen, trained = StaticFeatures(some_vectors()), StaticFeatures(some_vectors(), trainable=True)
    assert list(frozen.state_dict()) == ["unknown"]
    assert sorted(trained.state_dict()) == ["table", "unknown"]
    for features in (frozen, trained):
        features(SENTENCES).sum().backward()
        torch.testing.assert_close(features.unknown.grad, torch.full((5,), 2.0))
    counts = trained.table.grad[:, 0].tolist()
    assert counts == [0, 0, 2, 2, 0, 0]


def test_a_random_table_learns_what_an_unknown_word_is():
    """Words that occur once stand for the unknown half of the time while training, never in evaluation."""
    sentences = [["often", "often", "once"]]
    features = StaticFeatures.random(sentences, 4)
    row = features.eval()(sentences)[0]
    same = []
    for _ in range(400):
        out = features.train()(sentences)[0]
        torch.testing.assert_close(out[:2], row[:2])
        same.append(torch.equal(out[2], row[2]))
        assert same[-1] or torch.equal(out[2], features.unknown)
    assert 0.4 < np.mean(same) < 0.6
    assert features.trainable
    assert features.words == ["often", "once"]
    assert float(features.table.detach().abs().max()) <= (3 / 4) ** 0.5


def test_characters_by_the_formula_over_all_slots():
    """Fewer slots than max_characters give the same: the largest window over 50 slots, in float64."""
    features = CharacterFeatures(6, ((1, 3), (2, 4), (4, 5)))
    sentences = [["a", "zählt"], ["antidisestablishmentarianism-antidisestablishmentarianism"], ["a"]]
    out = features(sentences)
    assert out.shape == (3, 2, features.get_output_dim())
    ids = torch.from_numpy(words_to_ids([*sentences[0], *sentences[1]], 262))
    x = features.embedding.double()[ids].transpose(1, 2)
    truth = [
        torch.nn.functional.conv1d(x, c.weight.double(), c.bias.double()).amax(2).relu() for c in features.convolutions
    ]
    assert_close("features", torch.stack([out[0, 0], out[0, 1], out[1, 0]]), torch.cat(truth, 1))
    assert_close("alone", features(sentences[:1])[0], out[[2, 0], [0, 1]])
    assert not out[1:, 1].any()


def filled(features):
    with torch.no_grad():
        for m, mix in enumerate(features.scalar_mixes):
            for k, weight in enumerate(mix.scalar_parameters):
                weight.fill_(0.3 * k - 0.5 * m)
            mix.gamma.fill_(1.5 + m)
    return features


def cache_of(bilm, folder):
    return cached_layers(bilm, [Example(words, []) for words in SENTENCES], folder)


@pytest.mark.parametrize("mixes", [1, 2])
@pytest.mark.parametrize("layer", ["mix", "top", 0, 1, -1])
def test_cached_live_and_fine_tuned_mixes_are_those_of_elmo(tmp_path, files, bilm, mixes, layer):
    """One by one: the module Elmo, the frozen biLM live, its cache (all layers, and only those needed), and a biLM that
    is trained, before its first step."""
    bilm.stateful = True  # which changes nothing
    features = filled(ElmoFeatures(bilm, mixes, layer=layer))
    elmo = Elmo(*files, mixes, dropout=0, stateful=False).eval()
    layers = ElmoEmbedder(*files, stateful=False).batch_to_embeddings(SENTENCES)[0].unbind(1)
    if layer == "mix":
        for m, mix in enumerate(features.scalar_mixes):
            elmo.get_submodule(f"scalar_mix_{m}").load_state_dict(mix.state_dict())
        expected = torch.stack(elmo(batch_to_ids(SENTENCES))["elmo_representations"])
    else:
        chosen = layers[-1 if layer == "top" else layer]
        expected = torch.stack([(1.5 + m) * chosen for m in range(mixes)])
    features.eval()
    cache = cache_of(bilm, tmp_path)
    trained = ElmoFeatures(load_bilm(files[0].parent, fine_tune=True), mixes, layer=layer).eval()
    for _ in range(2):
        assert_close("live", features(SENTENCES), expected)
    assert_close("cached", features(SENTENCES, cache.batch(range(3))[0]), expected)
    assert_close("needed", features(SENTENCES, cache.batch(range(3), features.layers)[0]), expected)
    assert_close("trained", filled(trained)(SENTENCES), expected)
    assert features.get_output_dim() == 16


def test_what_of_elmo_is_trained(files, bilm):
    """Frozen: the mixes alone, and the biLM is in no state_dict and stays in evaluation mode. Fine-tuned: all."""
    features = ElmoFeatures(bilm, 2).train()
    features(SENTENCES).square().sum().backward()
    assert all(parameter.grad.abs() > 0 for parameter in features.parameters())
    assert set(features.state_dict()) == {
        f"scalar_mix_{m}.{name}" for m in range(2) for name in ("gamma", *(f"scalar_parameters.{k}" for k in range(3)))
    }
    assert not bilm.training
    assert not features.fine_tuned
    tuned = ElmoFeatures(load_bilm(files[0].parent, fine_tune=True), 1).train()
    tuned(SENTENCES).square().sum().backward()
    assert tuned.fine_tuned
    assert all(parameter.grad.abs().sum() > 0 for parameter in tuned.bilm.parameters())
    top = ElmoFeatures(bilm, 1, layer="top")
    assert [name for name, parameter in top.named_parameters() if parameter.requires_grad] == ["scalar_mix_0.gamma"]


def test_dropout_while_training_alone(bilm):
    features = ElmoFeatures(bilm, 2, dropout=0.5)
    assert not torch.equal(features.train()(SENTENCES), features(SENTENCES))
    torch.testing.assert_close(features.eval()(SENTENCES), features(SENTENCES))
    dropped = (features.train()(SENTENCES)[:, 0] == 0).float().mean()
    assert 0.3 < float(dropped) < 0.7
    whole = ElmoFeatures(bilm, 2, dropout=0.0)
    torch.testing.assert_close(whole.train()(SENTENCES), whole.eval()(SENTENCES))


def test_the_penalty(bilm):
    """λ times the sum of the squares of all w, 2 λ w its gradient, gamma left alone. bilm-tf's softmax of W + 1/(L+1)
    is the softmax of W."""
    features = filled(ElmoFeatures(bilm, 2, l2=0.1))
    w = np.array([[0, 0.3, 0.6], [-0.5, -0.2, 0.1]])
    penalty = features.penalty()
    assert float(penalty.detach()) == pytest.approx(0.1 * np.square(w).sum())
    penalty.backward()
    for row, mix in zip(w, features.scalar_mixes, strict=True):
        grads = [float(weight.grad) for weight in mix.scalar_parameters]
        assert grads == pytest.approx(list(0.2 * row), abs=1e-7)
        assert mix.gamma.grad is None
    for shift in (0, 1 / 3):
        softmax = np.exp(w + shift) / np.exp(w + shift).sum(1, keepdims=True)
        np.testing.assert_allclose(features.weights(), softmax, rtol=1e-6)
    assert features.gammas() == [1.5, 2.5]
    assert float(ElmoFeatures(bilm, 1, layer="top", l2=0.1).penalty().detach()) == 0
    assert float(filled(ElmoFeatures(bilm, 1, l2=0)).penalty().detach()) == 0


def test_settings_and_layers_that_do_not_fit(tmp_path, files, bilm):
    for layer in (3, -4, "lowest"):
        with pytest.raises(ElmoFastError, match='layer must be "mix", "top" or a number from 0 to 2; got'):
            ElmoFeatures(bilm, 1, layer=layer)
    features = ElmoFeatures(bilm, 1)
    for shape in ((2, 3, 3, 16), (3, 3, 3, 8)):
        with pytest.raises(
            ElmoFastError, match=f"layers must be 3 layers of width 16; got {shape[0]} of width {shape[3]}"
        ):
            features(SENTENCES, torch.zeros(shape))
    tuned = ElmoFeatures(load_bilm(files[0].parent, fine_tune=True), 1)
    with pytest.raises(ElmoFastError, match="layers must be None, since the biLM is trained"):
        tuned(SENTENCES, torch.zeros(3, 3, 3, 16))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_much_is_dropped_as_was_asked_and_the_rest_is_scaled(p):
    """Each element alone: the share over all, and that of neighbours that fall together."""
    x = torch.rand(400, 501) + 1
    out = dropout(x, p, True)
    nonzero = out != 0
    assert abs(float(nonzero.float().mean()) - (1 - p)) < 0.005
    torch.testing.assert_close(out[nonzero], x[nonzero] / (1 - p), rtol=2e-4, atol=0)
    for shift in (1, 2, 4):
        together = (nonzero[:, shift:] & nonzero[:, :-shift]).float().mean()
        assert abs(float(together) - (1 - p) ** 2) < 0.006
    assert abs(float(out.mean()) - 1.5) < 0.03


def test_the_seed_of_torch_decides():
    """The same seed drops the same, the next call others."""
    x = torch.ones(3, 7, 5)
    torch.manual_seed(1)
    first, second = dropout(x, 0.5, True), dropout(x, 0.5, True)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5, True), first)
    assert not torch.equal(second, first)


def test_the_gradient_is_what_was_kept():
    x = torch.ones(50, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.25, True)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    assert set(x.grad.tolist()) == {0.0, 4 / 3}
