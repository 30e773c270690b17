"""AllenNLP's state dictionaries: the biLM is found under any prefix, files are never unpickled, damage is named."""

import os
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.checkpoints import load_checkpoint, read_allennlp_state, read_bilm_hdf5, read_options
from elmo_fast.errors import CheckpointError
from tests.damaged import check_damaged
from tests.weights import make_weights


@pytest.fixture
def model(tmp_path):
    options_file, weight_file = make_weights(tmp_path)
    options = read_options(options_file)
    return options_file, options, read_bilm_hdf5(weight_file, options)


def in_elmo(state, prefix, mixes=1):
    """A state as AllenNLP's Elmo holds it below `prefix`."""
    tensors = {f"{prefix}_elmo_lstm.{name}": tensor for name, tensor in state.items()}
    for k in range(mixes):
        tensors[f"{prefix}scalar_mix_{k}.gamma"] = torch.tensor([1.5 + k])
        tensors |= {f"{prefix}scalar_mix_{k}.scalar_parameters.{j}": torch.tensor([j + 0.5]) for j in range(3)}
    return tensors


PREFIXES = ["", "_elmo.", "text_field_embedder.token_embedder_elmo._elmo.", "module._elmo_lstm_encoder.x."]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_bilm_and_its_mixes_are_found_under_any_prefix(model, prefix, tmp_path):
    options_file, options, state = model
    tensors = {
        **in_elmo(state, prefix, mixes=2),
        "encoder.weight": torch.ones(3),
        "vocab.scalar_mix_0.gamma": torch.ones(1),
    }
    torch.save(tensors, tmp_path / "best.th")
    for source in (tensors, tmp_path / "best.th", {"model": tensors, "epoch": 3}):
        read = read_allennlp_state(source, options)
        assert set(read) == set(state) | {f"scalar_mix_{k}.{n}" for k in range(2) for n in MIX}
        assert all(torch.equal(read[name], state[name]) for name in state)
        assert read["scalar_mix_1.gamma"].tolist() == [2.5]
        assert read["scalar_mix_0.scalar_parameters.2"].tolist() == [2.5]
    assert set(load_checkpoint(None, options_file, str(tmp_path / "best.th"))[0]) == set(read)


MIX = ("gamma", "scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2")


def test_a_bare_bilm_is_found_and_copied(model):
    _, options, state = model
    read = read_allennlp_state(state, options)
    assert read.keys() == state.keys()
    read["_token_embedder._projection.bias"].zero_()
    assert state["_token_embedder._projection.bias"].any()


def test_of_several_bilms_one_must_be_named_unless_they_are_equal(model):
    _, options, state = model
    twice = {**in_elmo(state, "a."), **in_elmo(state, "b.")}
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
    for several, message in (
        ({"a": huge}, "_projection.bias: wanted .* each stored"),
        ({"a": huge, "b": huge}, "several different"),
    ):
        torch.save(several, tmp_path / "weights.th")
        with pytest.raises(CheckpointError, match=message):
            read_allennlp_state(tmp_path / "weights.th", options)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.pop("_token_embedder.char_conv_1.bias"), r"char_conv_1.bias: wanted shape \[8\], found no such"),
        (lambda s: s.update({"_token_embedder.char_conv_1.bias": torch.zeros(9)}), r"wanted shape \[8\], found \[9\]"),
        (
            lambda s: s.update({"_elmo_lstm.forward_layer_2.x": torch.zeros(9)}),
            "forward_layer_2.x: the options require no",
        ),
        (lambda s: s["_token_embedder._projection.bias"].fill_(torch.nan), "8 NaN or infinite of 8"),
        (lambda s: s.pop("_elmo_lstm.forward_layer_0.input_linearity.weight"), "wanted an ELMo's tensors .*found none"),
        (lambda s: s.clear(), "wanted an ELMo's tensors .*found none"),
    ],
)
def test_what_does_not_fit_is_named(model, edit, message):
    _, options, state = model
    edit(state)
    with pytest.raises(CheckpointError, match=message):
        read_allennlp_state(state, options)


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


@pytest.fixture(scope="module", params=[False, True], ids=["zip", "legacy"])
def intact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    options_file, weight_file = make_weights(folder, cell=6, proj=4, filters=((1, 2), (2, 3)), layers=1, n_highway=1)
    options = read_options(options_file)
    state = read_bilm_hdf5(weight_file, options)
    torch.save(state, folder / "best.th", _use_new_zipfile_serialization=not request.param)
    return options, (folder / "best.th").read_bytes(), folder / "damaged.th"


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_random_damage_reads_rightly_shaped_or_is_refused(intact, data):
    """Cut anywhere, or with bytes changed."""
    check_damaged(read_allennlp_state, intact, data)
