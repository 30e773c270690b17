"""bilm-tf's HDF5 <-> a state: exact round trips; every damage is named, nothing foreign is read, old files stay."""

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmo_fast.checkpoints import (
    check_state,
    read_bilm_hdf5,
    read_options,
    read_token_embeddings,
    write_bilm_hdf5,
    write_token_embeddings,
)
from elmo_fast.errors import CheckpointError
from tests.support.weights import make_weights


def read(files):
    options_file, weight_file = files
    options = read_options(options_file)
    return read_bilm_hdf5(weight_file, options), options


def assert_equal_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype == torch.float32
        assert torch.equal(a[name].view(torch.int32), b[name].view(torch.int32)), name


def damaged(weight_file, edit):
    with h5py.File(weight_file, "r+") as file:
        edit(file)


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"


def replace(name, values):
    """Puts values in the place of a dataset, or adds them."""

    def edit(file):
        if name in file:
            del file[name]
        file[name] = values

    return edit


def remove(*names):
    def edit(file):
        for name in names:
            del file[name]

    return edit


VARIANTS = {
    "plain": {},
    "no state projection": {"cell": 8},
    "no projection of the encoder": {"filters": ((2, 3), (3, 5))},
    "one layer, no highway, tanh": {"layers": 1, "n_highway": 0, "activation": "tanh"},
    "projected upwards": {"cell": 6, "filters": ((1, 2),)},
    "word ids": {"words": 9, "softmax": 9},
    "softmax": {"softmax": 12},
    "three layers, 261": {"layers": 3, "n_characters": 261, "skip": False},
}


@pytest.mark.parametrize("sizes", VARIANTS.values(), ids=VARIANTS)
def test_file_to_state_to_file_is_exact(sizes, tmp_path):
    files = make_weights(tmp_path / "a", **sizes)
    state, options = read(files)
    write_bilm_hdf5(tmp_path / "b.hdf5", state, options)
    assert_equal_bits(read_bilm_hdf5(tmp_path / "b.hdf5", options), state)
    assert all(tensor.is_contiguous() for tensor in state.values())
    with h5py.File(files[1]) as before, h5py.File(tmp_path / "b.hdf5") as after:
        names = []
        before.visit(lambda name: names.append(name) if isinstance(before[name], h5py.Dataset) else None)
        for name in names:
            # A forget bias is read as b + 1 and written as b: its last bit may be lost on the way.
            np.testing.assert_allclose(after[name][...], before[name][...], rtol=0, atol=1e-7 * name.endswith("/B"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), sizes=st.sampled_from(list(VARIANTS.values())))
def test_any_state_to_file_to_state_is_exact(seed, sizes, tmp_path):
    """Also forget biases that float32 cannot hold less 1, such as 1e-10 and -0.3."""
    _, options = read(make_weights(tmp_path / "a", **sizes))
    state, _ = read(make_weights(tmp_path / "a", **sizes))
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in state.items():
        values = torch.randn(tensor.shape, generator=generator)
        if name.endswith("bias"):
            values *= 10.0 ** torch.randint(-12, 2, tensor.shape, generator=generator)
        state[name] = values
    for name in ("_token_embedder._char_embedding_weights", "_word_embedding.weight"):
        if name in state:
            state[name][0] = 0
    write_bilm_hdf5(tmp_path / "b.hdf5", state, options)
    assert_equal_bits(read_bilm_hdf5(tmp_path / "b.hdf5", options), state)


def test_a_table_of_262_rows_with_its_row_of_zeros_is_the_same_model(tmp_path):
    files = make_weights(tmp_path)
    state, _ = read(files)
    with h5py.File(files[1], "r+") as file:
        table = file["char_embed"][...]
        del file["char_embed"]
        file["char_embed"] = np.concatenate([np.zeros_like(table[:1]), table])
    assert_equal_bits(read(files)[0], state)
    with h5py.File(files[1], "r+") as file:
        file["char_embed"][0, 0] = 1
    with pytest.raises(CheckpointError, match=r"weights\.hdf5: char_embed: wanted 261 rows, or 262"):
        read(files)


def test_the_softmax_may_lie_in_a_file_of_its_own(tmp_path):
    files = make_weights(tmp_path / "a", words=7, softmax=7)
    state, options = read(files)
    write_bilm_hdf5(tmp_path / "lm.hdf5", state, options, softmax_file=tmp_path / "softmax.hdf5")
    with h5py.File(tmp_path / "lm.hdf5") as file:
        assert "softmax" not in file
    write_token_embeddings(tmp_path / "embedding.hdf5", state["_word_embedding.weight"])
    read_apart = read_bilm_hdf5(tmp_path / "lm.hdf5", options, softmax_file=tmp_path / "softmax.hdf5")
    assert_equal_bits(read_apart, state)
    assert torch.equal(read_token_embeddings(tmp_path / "embedding.hdf5"), state["_word_embedding.weight"])
    with pytest.raises(CheckpointError, match=r"lm\.hdf5: softmax: wanted in this file, found no such tensor"):
        read_bilm_hdf5(tmp_path / "lm.hdf5", options, softmax_file=tmp_path / "lm.hdf5")
    with pytest.raises(CheckpointError, match=r"softmax\.hdf5: .*embedding: wanted shape \[\*, \*\]"):
        read_token_embeddings(tmp_path / "softmax.hdf5")


def test_float16_and_float64_are_read_as_float32(tmp_path):
    files = make_weights(tmp_path)
    damaged(files[1], replace("CNN_proj/b_proj", np.arange(8).astype("f2")))
    assert read(files)[0]["_token_embedder._projection.bias"].tolist() == list(range(8))
    damaged(files[1], replace("CNN_proj/b_proj", np.arange(8).astype(">f8")))
    assert read(files)[0]["_token_embedder._projection.bias"].tolist() == list(range(8))
    damaged(files[1], replace("CNN_proj/b_proj", np.full(8, 1e300)))
    with pytest.raises(CheckpointError, match="8 NaN or infinite"):
        read(files)


def cells():
    return [f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell" for d in range(2) for layer in range(2)]


def test_projections_between_equal_sizes_are_kept_where_a_file_has_them(tmp_path):
    """bilm-tf leaves them out, AllenNLP always has them: presence in the file decides, for all layers alike."""
    files = make_weights(tmp_path, cell=8, filters=((2, 3), (3, 5)))
    rng = np.random.default_rng(0)
    with h5py.File(files[1], "r+") as file:
        for name in [f"{cell}/W_P_0" for cell in cells()] + ["CNN_proj/W_proj"]:
            file[name] = rng.normal(size=(8, 8)).astype("f4")
        file["CNN_proj/b_proj"] = rng.normal(size=8).astype("f4")
        expected = file["CNN_proj/W_proj"][...].T
    state, options = read(files)
    assert sum(name.endswith("state_projection.weight") for name in state) == 4
    np.testing.assert_array_equal(state["_token_embedder._projection.weight"].numpy(), expected)
    write_bilm_hdf5(tmp_path / "b.hdf5", state, options)
    assert_equal_bits(read_bilm_hdf5(tmp_path / "b.hdf5", options), state)
    damaged(files[1], remove(f"{CELL}/W_P_0", "CNN_proj/b_proj"))
    with pytest.raises(
        CheckpointError, match=r"b_proj: wanted shape \[8\], .*Cell1/LSTMCell/W_P_0: wanted shape \[8, 8\]"
    ):
        read(files)


def test_a_forget_bias_edited_later_counts(tmp_path):
    """Forget biases that B cannot hold exactly are stored next to it; if B was changed since, B counts."""
    files = make_weights(tmp_path)
    state, options = read(files)
    name = "_elmo_lstm.backward_layer_1.state_linearity.bias"
    state[name][24:48] = 1e-10
    write_bilm_hdf5(files[1], state, options)
    assert read(files)[0][name][24:48].tolist() == [torch.tensor(1e-10).item()] * 24
    with h5py.File(files[1], "r+") as file:
        bias = file[f"{CELL}/B"]
        assert bias.dtype == "f4"
        np.testing.assert_array_equal(bias[48:72], -1)
        bias[50] = 0.5
    read_back = read(files)[0][name][24:48]
    assert read_back[2] == 1.5
    assert read_back[1] == torch.tensor(1e-10)


def group_at(name):
    def edit(file):
        del file[name]
        file[f"{name}/inner"] = np.zeros(4, "f4")

    return edit


def poke(name, value):
    def edit(file):
        data = file[name][...]
        data.flat[-1] = value
        file[name][...] = data

    return edit


DAMAGES = {
    "missing": (remove("CNN/b_cnn_2"), r"CNN/b_cnn_2: wanted shape \[12\], found no such tensor"),
    "wrong shape": (
        replace(f"{CELL}/W_0", np.zeros((16, 95), "f4")),
        r"Cell1/LSTMCell/W_0: wanted shape \[16, 96\], found \[16, 95\]",
    ),
    "scalar": (replace("CNN/b_cnn_0", np.float32(1)), r"b_cnn_0: wanted shape \[4\], found \[\]"),
    "a group": (group_at("CNN/b_cnn_0"), r"b_cnn_0: wanted shape \[4\], found no such tensor"),
    "NaN": (poke("CNN/W_cnn_1", np.nan), r"char_conv_1\.weight: wanted finite numbers, found 1 NaN or infinite of 80"),
    "half a softmax": (replace("softmax/W", np.zeros((5, 8), "f4")), "softmax/b: .* found no such tensor"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_every_damage_is_named_with_file_tensor_wanted_and_found(case, tmp_path):
    edit, message = DAMAGES[case]
    files = make_weights(tmp_path)

    damaged(files[1], edit)
    with pytest.raises(CheckpointError, match=message) as error:
        read(files)
    assert str(error.value).startswith(str(files[1]))
    assert "\n" not in str(error.value)


def elsewhere(kind, file, name, folder):
    """Puts numbers of another file in the place of a dataset."""
    values = file[name][()]
    del file[name]
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["x"] = values
    values.tofile(folder / "raw")
    if kind == "external storage":
        file.create_dataset(name, values.shape, values.dtype, external=[(str(folder / "raw"), 0, values.nbytes)])
    elif kind == "virtual dataset":
        layout = h5py.VirtualLayout(values.shape, values.dtype)
        layout[...] = h5py.VirtualSource(str(folder / "other.hdf5"), "x", values.shape)
        file.create_virtual_dataset(name, layout)
    elif kind == "external link":
        file[name] = h5py.ExternalLink(str(folder / "other.hdf5"), "x")
    elif kind == "soft link":
        file["aside"] = values
        file[name] = h5py.SoftLink("/aside")


@pytest.mark.parametrize("kind", ["external storage", "virtual dataset", "external link", "soft link"])
def test_numbers_of_other_files_are_not_read(kind, tmp_path):
    name, files = f"{CELL}/B", make_weights(tmp_path / "a")
    with h5py.File(files[1], "r+") as file:
        elsewhere(kind, file, name, tmp_path)
    message = "a link; links are not followed" if "link" in kind else "its numbers are in other files"
    with pytest.raises(CheckpointError, match=rf"weights\.hdf5: {name}: .*{message}"):
        read(files)


@pytest.mark.parametrize("content", [b"", b"not HDF5", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000])
def test_what_is_not_hdf5_is_refused_by_name(content, tmp_path):
    options_file, weight_file = make_weights(tmp_path)
    weight_file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"weights\.hdf5: not an HDF5 file of weights, or damaged"):
        read((options_file, weight_file))


def test_an_absent_file_is_refused_by_name(tmp_path):
    options_file, _ = make_weights(tmp_path)
    with pytest.raises(CheckpointError, match=r"nowhere\.hdf5: cannot be read"):
        read((options_file, tmp_path / "nowhere.hdf5"))


def test_options_of_another_model_are_refused(tmp_path):
    small = make_weights(tmp_path / "small")
    large = make_weights(tmp_path / "large", cell=30, proj=10)
    message = (
        r"hdf5: the options may be of another model; give those of these weights; .*W_0: wanted shape \[20, 120\], "
        r"found \[16, 96\].*and \d+ more"
    )
    with pytest.raises(CheckpointError, match=message):
        read((large[0], small[1]))
    for cells in (10**18, 10**30):
        text = small[0].read_text().replace('"dim": 24', f'"dim": {cells}')
        (tmp_path / "huge.json").write_text(text)
        with pytest.raises(CheckpointError, match="the options want tensors larger than any memory"):
            read((tmp_path / "huge.json", small[1]))
    words = make_weights(tmp_path / "words", words=9)
    with pytest.raises(CheckpointError, match="the options require no such tensor"):
        read((words[0], small[1]))


def test_a_state_that_does_not_fit_is_not_written(tmp_path):
    state, options = read(make_weights(tmp_path))
    bias = "_token_embedder._projection.bias"
    target = tmp_path / "out" / "x.hdf5"
    for bad, message in (
        ({**state, bias: state[bias].half()}, "wanted float32, found float16"),
        ({**state, bias: torch.zeros(9)}, r"wanted shape \[8\], found \[9\]"),
        ({**state, bias: torch.full((8,), torch.nan)}, "8 NaN"),
        ({**state, "other": torch.zeros(1)}, "other: the options require no such tensor"),
        ({name: t for name, t in state.items() if name != bias}, "found no such tensor"),
        ({**state, **mix()}, "scalar_mix_0.gamma: the format cannot store scalar mixes"),
        ({**state, "_token_embedder._char_embedding_weights": torch.ones(262, 5)}, "row 0 .* must be zero"),
    ):
        with pytest.raises(CheckpointError, match=message):
            write_bilm_hdf5(target, bad, options)
    assert not target.exists()
    check_state(state, options)


def mix(layers=3):
    return {"scalar_mix_0.gamma": torch.ones(1)} | {
        f"scalar_mix_0.scalar_parameters.{j}": torch.zeros(1) for j in range(layers)
    }
