"""AllenNLP's state dictionaries and its tasks' models: the ELMo is detected, nothing is unpickled, damage is named."""

import json
import os
import pathlib
import pickle
import shutil

import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, read_allennlp_state, read_bilm_hdf5, read_options
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.support.snippets import ORIGINAL_FILTERS
from tests.support.weights import make_weights

KEY = "model.text_field_embedder.token_embedders.elmo"
PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
ADDRESS = "https://allennlp.s3.amazonaws.com/models/elmo/2x24_8_2048cnn_2xhighway/"


def in_task(state, prefix, number=1):
    """The tensors of an Elmo below a prefix, with `number` mixes."""
    tensors = {f"{prefix}_elmo_lstm.{name}": tensor for name, tensor in state.items()}
    for k in range(number):
        tensors[f"{prefix}scalar_mix_{k}.gamma"] = torch.tensor([1.5 + k])
        tensors |= {f"{prefix}scalar_mix_{k}.scalar_parameters.{j}": torch.tensor([j - 0.5]) for j in range(3)}
    return tensors


def embedder(options_file, **settings):
    return {"type": "elmo_token_embedder", "options_file": options_file, "weight_file": "weights.hdf5", **settings}


def serialized(folder, embedders, tensors, options_file=None, of=("elmo",)):
    """Folder of a tagger as AllenNLP writes it; options_file: copied into it under the keys of these ELMos."""
    written = folder / "serialized"
    (written / "vocabulary").mkdir(parents=True, exist_ok=True)
    (written / "vocabulary" / "tags.txt").write_text("B\n")
    model = {"type": "simple_tagger", "text_field_embedder": {"token_embedders": embedders}}
    (written / "config.json").write_text(json.dumps({"model": model, "trainer": {"optimizer": "adam"}}))
    others = {"encoder.weight": torch.ones(2, 2), "scalar_mix_0.gamma": torch.zeros(1)}
    torch.save(others | tensors, written / "weights.th")
    if options_file is not None:
        (written / "fta").mkdir()
        keys = [f"{KEY.removesuffix('elmo')}{name}.options_file" for name in of]
        for key in keys:
            shutil.copy(options_file, written / "fta" / key)
        (written / "files_to_archive.json").write_text(json.dumps(dict.fromkeys(keys, "elmo/options.json")))
    return written


def packed(folder, *contents, **more):
    """model.tar.gz of `serialized`."""
    return pathlib.Path(shutil.make_archive(folder / "model", "gztar", serialized(folder, *contents, **more)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The files of a biLM whose options the shapes do not tell: tanh, no clips, 20 characters."""
    return make_weights(
        tmp_path_factory.mktemp("pair"),
        activation="tanh",
        cell_clip=None,
        proj_clip=None,
        skip=False,
        max_characters=20,
    )


@pytest.fixture(scope="module")
def state(pair):
    return read_bilm_hdf5(pair[1], read_options(pair[0]))


def test_the_bilm_and_the_mixes_are_taken_out(pair, state, tmp_path):
    """The options are those in the archive; the vectors are those of an Elmo of the same files, with its settings."""
    path = packed(
        tmp_path, {"elmo": embedder("gone/options.json", do_layer_norm=True)}, in_task(state, PREFIX, 2), pair[0]
    )
    for model in (path, tmp_path / "serialized"):
        read, options = load_checkpoint(model)
        assert options == read_options(pair[0])
        assert {name for name in read if name.startswith("scalar_mix")} == {
            f"scalar_mix_{k}.{name}"
            for k in (0, 1)
            for name in ("gamma", *(f"scalar_parameters.{j}" for j in range(3)))
        }
        assert all(torch.equal(read[name], state[name]) for name in state)
    sentence = ["Résumé", "cat", "."]
    reference = ElmoEmbedder(*map(str, pair)).embed_sentence(sentence)
    assert (ElmoEmbedder.from_pretrained(path).embed_sentence(sentence) == reference).all()
    elmo = Elmo.from_pretrained(path, dropout=0)
    expected = Elmo(*map(str, pair), 2, dropout=0, do_layer_norm=True)
    expected.load_state_dict({name.removeprefix(PREFIX): each for name, each in in_task(state, PREFIX, 2).items()})
    ids = elmo.batch_to_ids([sentence])
    for actual, other in zip(elmo(ids)["elmo_representations"], expected(ids)["elmo_representations"], strict=True):
        assert torch.equal(actual, other)


def test_published_options_are_known_by_name_and_checked_against_weights(tmp_path):
    """relu, clips of 3, skip connections, 50 characters, filters of 1 to 7."""
    files = make_weights(tmp_path / "pair", filters=ORIGINAL_FILTERS, char_dim=16, n_highway=1)
    options = read_options(files[0])
    state = read_bilm_hdf5(files[1], options)
    name = "elmo_2x24_8_2048cnn_1xhighway_options.json"
    read, actual = load_checkpoint(serialized(tmp_path, {"elmo": embedder(ADDRESS + name)}, in_task(state, PREFIX)))
    assert (actual.lstm, actual.char_cnn) == (options.lstm, options.char_cnn)
    assert all(torch.equal(read[key], state[key]) for key in state)
    path = serialized(tmp_path, {"elmo": embedder(ADDRESS + name.replace("_8_", "_16_"))}, in_task(state, PREFIX))
    with pytest.raises(
        CheckpointError, match=r"weights\.th: .*input_linearity\.weight: wanted shape \[96, 16\], found \[96, 8\]"
    ):
        load_checkpoint(path)


def test_other_options_are_asked_for_and_may_be_given(pair, state, tmp_path):
    path = packed(tmp_path, {"elmo": embedder("/home/me/options.json")}, in_task(state, PREFIX))
    with pytest.raises(
        CheckpointError,
        match=rf"model\.tar\.gz/config\.json: {KEY}\.options_file is /home/me/options\.json, which is neither in",
    ):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"softmax_file needs HDF5 weights; got softmax\.hdf5 with .*tar\.gz"):
        load_checkpoint(options_file=pair[0], weight_file=path, softmax_file="softmax.hdf5")
    read, options = load_checkpoint(options_file=pair[0], weight_file=path)
    assert options == read_options(pair[0])
    assert read["scalar_mix_0.gamma"].tolist() == [1.5]
    (tmp_path / "serialized" / "config.json").write_text('{"model": {"type": "simple_tagger"}}')
    with pytest.raises(
        CheckpointError, match=r"config\.json: wanted a part with options_file, as of an ELMo, found none"
    ):
        load_checkpoint(tmp_path / "serialized")
    parts = {"a": embedder("a/options.json"), "b": embedder("b/options.json")}  # neither has the name of the weights
    with pytest.raises(CheckpointError, match=r"as of an ELMo, found several: .*\.a, .*\.b; give options_file"):
        load_checkpoint(serialized(tmp_path, parts, in_task(state, PREFIX)))


def test_of_several_elmos_one_is_chosen_by_its_prefix(pair, state, tmp_path):
    """Its options are those of the embedder of its name."""
    other = {name: tensor + 1 if name.endswith("projection.bias") else tensor for name, tensor in state.items()}
    wiki = PREFIX.replace("elmo.", "wiki.", 1)
    embedders = {"elmo": embedder("a/options.json"), "wiki": embedder("b/other.json"), "tokens": {"type": "embedding"}}
    embedders["elmo"]["do_layer_norm"] = True
    path = packed(tmp_path, embedders, in_task(state, PREFIX) | in_task(other, wiki), pair[0])
    with pytest.raises(
        CheckpointError, match=rf"biLMs, at \['{PREFIX}_elmo_lstm\.', '{wiki}_elmo_lstm\.'\]: choose one"
    ):
        load_checkpoint(path)
    chosen, bias = f"{PREFIX}_elmo_lstm.", "_token_embedder._projection.bias"
    assert torch.equal(load_checkpoint(path, prefix=chosen)[0][bias], state[bias])
    with pytest.raises(
        CheckpointError, match=r"token_embedders\.wiki\.options_file is b/other\.json, which is neither"
    ):
        load_checkpoint(path, prefix=f"{wiki}_elmo_lstm.")
    assert Elmo.from_pretrained(path, prefix=chosen)._settings["do_layer_norm"]
    with pytest.raises(CheckpointError, match=r"prefix chooses one of several biLMs in an AllenNLP model; .*hdf5 is"):
        load_checkpoint(None, *pair, prefix=chosen)
    with pytest.raises(ElmoFastError, match="prefix chooses a biLM in the file of an AllenNLP model; got 'a' and no"):
        ElmoEmbedder(read_options(pair[0]), None, prefix="a")


@pytest.fixture
def model(tmp_path):
    options_file, weight_file = make_weights(tmp_path)
    options = read_options(options_file)
    return options_file, options, read_bilm_hdf5(weight_file, options)


PREFIXES = ["", "_elmo.", "text_field_embedder.token_embedder_elmo._elmo.", "module._elmo_lstm_encoder.x."]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_bilm_and_its_mixes_are_found_under_any_prefix(model, prefix, tmp_path):
    options_file, options, state = model
    tensors = {
        **in_task(state, prefix, number=2),
        "encoder.weight": torch.ones(3),
        "vocab.scalar_mix_0.gamma": torch.ones(1),
    }
    torch.save(tensors, tmp_path / "best.th")
    for source in (tensors, tmp_path / "best.th", {"model": tensors, "epoch": 3}):
        read = read_allennlp_state(source, options)
        assert set(read) == set(state) | {f"scalar_mix_{k}.{n}" for k in range(2) for n in MIX}
        assert all(torch.equal(read[name], state[name]) for name in state)
        assert read["scalar_mix_1.gamma"].tolist() == [2.5]
        assert read["scalar_mix_0.scalar_parameters.2"].tolist() == [1.5]
    assert set(load_checkpoint(None, options_file, str(tmp_path / "best.th"))[0]) == set(read)


MIX = ("gamma", "scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2")


def test_of_several_bilms_one_must_be_named_unless_they_are_equal(model):
    _, options, state = model
    twice = {**in_task(state, "a."), **in_task(state, "b.")}
    assert read_allennlp_state(twice, options).keys() >= state.keys()
    twice["b._elmo_lstm._token_embedder._projection.bias"] = torch.full((8,), 7.0)
    with pytest.raises(CheckpointError, match=r"several different biLMs, at \['a._elmo_lstm.', 'b._elmo_lstm.'\]"):
        read_allennlp_state(twice, options)
    read = read_allennlp_state(twice, options, prefix="b._elmo_lstm.")
    assert read["_token_embedder._projection.bias"].tolist() == [7.0] * 8
    with pytest.raises(CheckpointError, match=r"prefix='c.'"):
        read_allennlp_state(twice, options, prefix="c.")


def test_half_precision_widens_exactly_and_other_kinds_are_refused(model):
    _, options, state = model
    half = {name: tensor.bfloat16() for name, tensor in state.items()}
    read = read_allennlp_state(half, options)
    assert all(read[name].dtype == torch.float32 and torch.equal(read[name], half[name].float()) for name in half)
    name = "_token_embedder._projection.bias"
    for strange in (torch.zeros(8, dtype=torch.int64), torch.zeros(8).to_sparse(), torch.zeros(8, device="meta")):
        with pytest.raises(CheckpointError, match=f"{name}: wanted a dense tensor of floating-point numbers"):
            read_allennlp_state({**state, name: strange}, options)


def test_a_number_that_a_small_file_spreads_over_terabytes_is_not_copied(model, tmp_path):
    """Alone, and in a second biLM that would be compared with the first."""
    _, options, state = model
    huge = {**state, "_token_embedder._projection.bias": torch.zeros(1).expand(10**13)}
    for several in ({"a": huge}, {"a": huge, "b": huge}):
        torch.save(several, tmp_path / "weights.th")
        with pytest.raises(CheckpointError, match=r"_projection\.bias: wanted .* each stored"):
            read_allennlp_state(tmp_path / "weights.th", options)


class Trap:
    """An object whose unpickling would leave a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_file_with_code_in_it_is_not_run(model, tmp_path):
    _, options, state = model
    mark = str(tmp_path / "mark")
    for name, legacy in (("new.th", False), ("old.th", True)):
        torch.save({**state, "x": Trap(mark)}, tmp_path / name, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(CheckpointError, match=f"{name}: contains Python objects besides tensors.*not loaded"):
            read_allennlp_state(tmp_path / name, options)
    (tmp_path / "plain.th").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(CheckpointError, match=r"plain\.th"):
        read_allennlp_state(tmp_path / "plain.th", options)
    assert not os.path.exists(mark)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk", b"\x80\x02}."])
def test_what_is_not_a_torch_file_is_refused_by_name(model, content, tmp_path):
    (tmp_path / "x.th").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.th"):
        read_allennlp_state(tmp_path / "x.th", model[1])
    with pytest.raises(CheckpointError, match=r"absent\.th: cannot be read"):
        read_allennlp_state(tmp_path / "absent.th", model[1])
