"""save_pretrained and from_pretrained: the same module again, from every kind of place."""

import pytest
import torch

from elmo_fast import BiLM, Elmo, batch_to_ids
from elmo_fast.checkpoints import load_checkpoint, read_config, save_folder
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.support.weights import make_weights

PROJECTION_BIAS = "_token_embedder._projection.bias"
SENTENCES = [["a", "cat", "sat"], ["so", "what", "?", "!"]]


@pytest.fixture
def files(tmp_path):
    return tuple(map(str, make_weights(tmp_path / "pair")))


def trained(files, **settings):
    """An Elmo whose mixes have been trained, and whose biLM is no longer the files'."""
    elmo = Elmo(*files, 2, dropout=0.25, stateful=False, **settings)
    with torch.no_grad():
        for parameter in elmo.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        elmo._elmo_lstm._token_embedder._char_embedding_weights[0] = 0
    return elmo.eval()


def outputs(elmo):
    result = elmo(batch_to_ids(SENTENCES))
    return [*result["elmo_representations"], result["mask"]]


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_layer_norm": True}, {"do_layer_norm": True, "statistics": "bilm"}, {"keep_sentence_boundaries": True}],
)
def test_a_saved_elmo_comes_back_the_same(files, tmp_path, settings):
    """Outputs, parameters and what is trained of them; the mixes under their names in the checkpoint."""
    elmo = trained(files, **settings)
    elmo.save_pretrained(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
    state, _ = load_checkpoint(tmp_path / "saved")
    for name in ("scalar_mix_1.gamma", "scalar_mix_0.scalar_parameters.2"):
        assert torch.equal(state[name], elmo.state_dict()[name])
    again = Elmo.from_pretrained(tmp_path / "saved", stateful=False).eval()
    assert all(map(torch.equal, outputs(again), outputs(elmo)))
    assert again._dropout.p == 0.25
    assert {name: p.requires_grad for name, p in again.named_parameters()} == {
        name: p.requires_grad for name, p in elmo.named_parameters()
    }
    again.save_pretrained(tmp_path / "twice")
    assert read_config(tmp_path / "twice")["extra"] == read_config(tmp_path / "saved")["extra"]


def test_what_is_asked_for_goes_before_what_was_kept(files, tmp_path):
    elmo = trained(files)
    elmo.save_pretrained(tmp_path)
    other = Elmo.from_pretrained(tmp_path, 2, dropout=0.0, keep_sentence_boundaries=True, requires_grad=True)
    assert (other._dropout.p, other.training) == (0.0, True)
    assert all(p.requires_grad for p in other.parameters())
    assert [r.shape[1] for r in outputs(other)] == [6, 6, 6]
    assert torch.equal(other.scalar_mix_1.gamma, elmo.scalar_mix_1.gamma)
    fixed = Elmo.from_pretrained(tmp_path, scalar_mix_parameters=[1.0, 2.0, 3.0])
    assert [float(w) for w in fixed.scalar_mix_0.scalar_parameters] == [1.0, 2.0, 3.0]
    assert float(fixed.scalar_mix_0.gamma) == 1.0
    for number in (1, 3):
        with pytest.raises(ElmoFastError, match=r"num_output_representations must be 2, .*got \d"):
            Elmo.from_pretrained(tmp_path, number)


def test_a_folder_without_mixes_gives_as_many_new_ones_as_asked_for(files, tmp_path):
    """Also one that save_pretrained wrote of an Elmo without any."""
    save_folder(tmp_path / "bare", *load_checkpoint(None, *files))
    Elmo(*files, 0).save_pretrained(tmp_path / "none")
    for folder, number, expected in (("bare", None, 1), ("bare", 3, 3), ("none", None, 0), ("none", 2, 2)):
        elmo = Elmo.from_pretrained(tmp_path / folder, number)
        assert len(elmo._scalar_mixes) == expected
        assert all(not any(mix.scalar_parameters) for mix in elmo._scalar_mixes)


def test_another_module_or_a_half_kept_mix_is_refused(files, tmp_path):
    class Other(torch.nn.Module):
        num_layers = 3

    with pytest.raises(ElmoFastError, match="save_pretrained writes a BiLM of elmo_fast; got Other"):
        Elmo(None, None, 1, module=Other()).save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    state, options = load_checkpoint(None, *files)
    mix = {"gamma": torch.ones(1)} | {f"scalar_parameters.{j}": torch.zeros(1) for j in range(3)}
    save_folder(tmp_path / "gap", state | {f"scalar_mix_1.{name}": tensor for name, tensor in mix.items()}, options)
    with pytest.raises(CheckpointError, match=r"scalar_mix_0: gamma: wanted shape .*, found no such tensor"):
        Elmo.from_pretrained(tmp_path / "gap")


def test_cached_vectors_are_left_out_and_trained_ones_with_a_warning(files, tmp_path):
    words = ["<pad>", "cat"]
    Elmo(*files, 1, vocab_to_cache=words).save_pretrained(tmp_path)
    assert not [name for name in load_checkpoint(tmp_path)[0] if name.startswith("_word_embedding")]
    with pytest.warns(UserWarning, match="a checkpoint cannot store the trained vectors of vocab_to_cache: left out"):
        Elmo(*files, 1, requires_grad=True, vocab_to_cache=words).save_pretrained(tmp_path)


def test_a_state_goes_with_options_only(files):
    state, options = load_checkpoint(None, *files)
    assert torch.equal(BiLM(options, state).state_dict()[PROJECTION_BIAS], state[PROJECTION_BIAS])
    with pytest.raises(ElmoFastError, match=r"or an ElmoOptions and its state or None; got \w+ and dict"):
        BiLM(files[0], state)
    with pytest.raises(ElmoFastError, match="options_file and weight_file must be two paths"):
        BiLM(options, files[1])
