"""bilm-tf's HDF5 <-> a state: the right numbers in the right places, and exact round trips."""

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmo_fast.checkpoints import (
    read_bilm_hdf5,
    read_token_embeddings,
    state_shapes,
    write_bilm_hdf5,
    write_token_embeddings,
)
from elmo_fast.errors import CheckpointError
from tests.checkpoints.bilm_hdf5_cases import CELL, assert_equal_bits, damaged, read, remove, replace
from tests.weights import make_weights

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


def test_every_number_is_where_allennlp_has_it(tmp_path):
    """Each tensor against the file by the formulas: gates, transposes, signs, forget bias, row of zeros."""
    files = make_weights(tmp_path)
    state, options = read(files)
    H, D, W = options.lstm.dim, options.lstm.projection_dim, options.char_cnn.n_filters
    with h5py.File(files[1]) as file:
        f = {}
        file.visititems(lambda name, item: f.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    t = {name: tensor.numpy() for name, tensor in state.items()}
    table = t["_token_embedder._char_embedding_weights"]
    assert not table[0].any()
    np.testing.assert_array_equal(table[1:], f["char_embed"])
    conv = t["_token_embedder.char_conv_1.weight"]
    assert conv.shape == (8, 5, 2)
    for k in range(2):
        np.testing.assert_array_equal(conv[:, :, k], f["CNN/W_cnn_1"][0, k].T)
    np.testing.assert_array_equal(t["_token_embedder.char_conv_1.bias"], f["CNN/b_cnn_1"])
    x = np.random.default_rng(0).normal(size=W)
    high = t["_token_embedder._highways._layers.1.weight"] @ x + t["_token_embedder._highways._layers.1.bias"]
    np.testing.assert_allclose(high[:W], x @ f["CNN_high_1/W_transform"] + f["CNN_high_1/b_transform"], rtol=1e-6)
    np.testing.assert_allclose(high[W:], -(x @ f["CNN_high_1/W_carry"] + f["CNN_high_1/b_carry"]), rtol=1e-6)
    np.testing.assert_array_equal(t["_token_embedder._projection.weight"], f["CNN_proj/W_proj"].T)
    np.testing.assert_array_equal(t["_token_embedder._projection.bias"], f["CNN_proj/b_proj"])
    for d, direction in enumerate(("forward", "backward")):
        ours = f"_elmo_lstm.{direction}_layer_1"
        theirs = f"RNN_{d}/RNN/MultiRNNCell/Cell1/LSTMCell"
        w, b = f[f"{theirs}/W_0"], f[f"{theirs}/B"].copy()
        b[2 * H : 3 * H] += 1
        for gate, column in enumerate((0, 2, 1, 3)):  # i, f, g, o from i, j, f, o
            rows, columns = slice(gate * H, (gate + 1) * H), slice(column * H, (column + 1) * H)
            np.testing.assert_array_equal(t[f"{ours}.input_linearity.weight"][rows], w[:D, columns].T)
            np.testing.assert_array_equal(t[f"{ours}.state_linearity.weight"][rows], w[D:, columns].T)
            np.testing.assert_array_equal(t[f"{ours}.state_linearity.bias"][rows], b[columns])
        np.testing.assert_array_equal(t[f"{ours}.state_projection.weight"], f[f"{theirs}/W_P_0"].T)


def test_the_fixture_reads(shared):
    folder = shared / "data/bilm_tf_fixture"
    state, options = read((folder / "options.json", folder / "lm_weights.hdf5"))
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == state_shapes(options, state)
    assert len(state) == 1 + 2 * 5 + 2 * 2 + 2 + 4 * 4


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


def test_softmax_and_embedding_may_lie_in_files_of_their_own(tmp_path):
    files = make_weights(tmp_path / "a", words=7, softmax=7)
    state, options = read(files)
    write_bilm_hdf5(tmp_path / "lm.hdf5", state, options, softmax_file=tmp_path / "softmax.hdf5")
    with h5py.File(tmp_path / "lm.hdf5", "r+") as file:
        assert "softmax" not in file
        del file["embedding"]
    write_token_embeddings(tmp_path / "embedding.hdf5", state["_word_embedding.weight"])
    apart = {"embedding_file": tmp_path / "embedding.hdf5", "softmax_file": tmp_path / "softmax.hdf5"}
    assert_equal_bits(read_bilm_hdf5(tmp_path / "lm.hdf5", options, **apart), state)
    assert torch.equal(read_token_embeddings(tmp_path / "embedding.hdf5"), state["_word_embedding.weight"])
    with pytest.raises(CheckpointError, match=r"lm\.hdf5: embedding: wanted shape \[7, 8\], found no such tensor"):
        read_bilm_hdf5(tmp_path / "lm.hdf5", options)
    with pytest.raises(CheckpointError, match=r"lm\.hdf5: softmax: wanted in this file, found no such tensor"):
        read_bilm_hdf5(tmp_path / "lm.hdf5", options, **apart | {"softmax_file": tmp_path / "lm.hdf5"})
    with pytest.raises(CheckpointError, match=r"softmax\.hdf5: embedding: wanted shape \[\*, \*\]"):
        read_token_embeddings(tmp_path / "softmax.hdf5")


def test_float16_reads_exactly_and_rounded_float64_warns(tmp_path):
    files = make_weights(tmp_path)
    damaged(files[1], replace("CNN_proj/b_proj", np.arange(8).astype("f2")))
    assert read(files)[0]["_token_embedder._projection.bias"].tolist() == list(range(8))
    damaged(files[1], replace("CNN_proj/b_proj", np.arange(8).astype(">f8")))
    assert read(files)[0]["_token_embedder._projection.bias"].tolist() == list(range(8))
    damaged(files[1], replace("CNN_proj/b_proj", np.full(8, 0.1)))
    with pytest.warns(UserWarning, match="CNN_proj/b_proj: rounded from float64 to float32"):
        read(files)
    damaged(files[1], replace("CNN_proj/b_proj", np.full(8, 1e300)))
    with pytest.warns(UserWarning, match="rounded"), pytest.raises(CheckpointError, match="8 NaN or infinite"):
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
        wanted = file["CNN_proj/W_proj"][...].T
    state, options = read(files)
    assert sum(name.endswith("state_projection.weight") for name in state) == 4
    np.testing.assert_array_equal(state["_token_embedder._projection.weight"].numpy(), wanted)
    write_bilm_hdf5(tmp_path / "b.hdf5", state, options)
    assert_equal_bits(read_bilm_hdf5(tmp_path / "b.hdf5", options), state)
    damaged(files[1], remove(f"{CELL}/W_P_0", "CNN_proj/b_proj"))
    with pytest.raises(
        CheckpointError, match=r"b_proj: wanted shape \[8\], .*Cell1/LSTMCell/W_P_0: wanted shape \[8, 8\]"
    ):
        read(files)


def test_a_forget_bias_edited_later_counts(tmp_path):
    """Forget biases that B cannot hold exactly lie beside it; where B was changed since, B is right."""
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
