"""bilm-tf's HDF5: every damage is named, nothing foreign is read, and a write that fails leaves the old file."""

import os
import shutil
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.checkpoints import (
    bilm_hdf5,
    check_state,
    read_bilm_hdf5,
    read_options,
    read_token_embeddings,
    write_bilm_hdf5,
)
from elmo_fast.errors import CheckpointError
from tests.checkpoints.bilm_hdf5_cases import CELL, assert_equal_bits, damaged, read, remove, replace
from tests.damaged import check_damaged
from tests.weights import make_weights


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
    "missing table": (remove("char_embed"), r"char_embed: wanted shape \[261, 5\], found no such tensor"),
    "missing projection": (remove(f"{CELL}/W_P_0"), r"Cell1/LSTMCell/W_P_0: wanted shape \[24, 8\], found no such"),
    "all in one": (
        remove("CNN_high_0/b_carry", "CNN_proj/W_proj"),
        r"CNN_high_0/b_carry: wanted shape \[24\], found no such tensor; CNN_proj/W_proj: wanted shape \[24, 8\]",
    ),
    "wrong shape": (
        replace(f"{CELL}/W_0", np.zeros((16, 95), "f4")),
        r"Cell1/LSTMCell/W_0: wanted shape \[16, 96\], found \[16, 95\]",
    ),
    "transposed": (
        replace("CNN_proj/W_proj", np.zeros((8, 24), "f4")),
        r"W_proj: wanted shape \[24, 8\], found \[8, 24\]",
    ),
    "260 rows": (
        replace("char_embed", np.zeros((260, 5), "f4")),
        r"char_embed: wanted shape \[261, 5\], found \[260, 5\]",
    ),
    "scalar": (replace("CNN/b_cnn_0", np.float32(1)), r"b_cnn_0: wanted shape \[4\], found \[\]"),
    "no shape": (replace("CNN/b_cnn_0", h5py.Empty("f4")), r"b_cnn_0: wanted shape \[4\], found \[\]"),
    "a group": (group_at("CNN/b_cnn_0"), r"b_cnn_0: wanted shape \[4\], found no such tensor"),
    "integers": (replace("CNN/b_cnn_0", np.zeros(4, "i4")), "b_cnn_0: wanted floating-point numbers, found int32"),
    "text": (replace("CNN/b_cnn_0", np.array([b"ab"] * 4)), "b_cnn_0: wanted floating-point numbers"),
    "NaN": (poke("CNN/W_cnn_1", np.nan), "CNN/W_cnn_1: wanted finite numbers, found 1 NaN or infinite of 80"),
    "infinity": (poke(f"{CELL}/B", -np.inf), "B: wanted finite numbers, found 1 NaN or infinite of 96"),
    "a layer more": (
        replace("RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/B", np.zeros(96, "f4")),
        r"Cell2/LSTMCell/B: shape \[96\], but the options require no such tensor",
    ),
    "a highway more": (replace("CNN_high_2/b_carry", np.zeros(24, "f4")), "CNN_high_2/b_carry: .* no such tensor"),
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
    elif kind == "hard link":
        file["aside"] = values
        file[name] = file["aside"]


@pytest.mark.parametrize("name", ["char_embed", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"])
@pytest.mark.parametrize("kind", ["external storage", "virtual dataset", "external link", "soft link", "hard link"])
def test_numbers_of_other_files_are_not_read(kind, name, tmp_path):
    files = make_weights(tmp_path / "a")
    wanted, _ = read(files)
    with h5py.File(files[1], "r+") as file:
        elsewhere(kind, file, name, tmp_path)
    if kind == "hard link":
        assert_equal_bits(read(files)[0], wanted)
        return
    message = "a link; links are not followed" if "link" in kind else "its numbers are in other files"
    with pytest.raises(CheckpointError, match=rf"weights\.hdf5: {name}: .*{message}"):
        read(files)


@pytest.mark.parametrize("kind", ["deep", "elsewhere", "round", "wide"])
def test_files_of_very_many_groups_are_done_with_at_once(kind, tmp_path, monkeypatch):
    """Groups that no biLM has are not looked into; where a biLM's own are too many, the file is refused."""
    files = make_weights(tmp_path / "a")
    wanted, options = read(files)
    with h5py.File(files[1], "r+") as file:
        group = file["CNN"]
        for i in range(400):
            if kind == "deep":
                group = group.create_group("g")
            elif kind == "round":
                file[f"RNN_0/RNN/MultiRNNCell/again{i % 20}-{i // 20}"] = file["RNN_0"]
            else:
                file.create_group(f"{'CNN' if kind == 'wide' else 'many'}/{i}/g")
    looked, entry = [], h5py.Group.get
    monkeypatch.setattr(h5py.Group, "get", lambda *words, **named: looked.append(words) or entry(*words, **named))
    monkeypatch.setattr(bilm_hdf5, "_MOST_ENTRIES", 300)
    if kind in ("deep", "elsewhere"):
        assert_equal_bits(read_bilm_hdf5(files[1], options), wanted)
    else:
        with pytest.raises(CheckpointError, match=r"weights\.hdf5: wanted the weights .* found more than 300 en"):
            read_bilm_hdf5(files[1], options)
    assert len(looked) <= 300


def test_a_table_that_was_never_written_is_not_believed(tmp_path):
    """Of a shape that takes 4 TB in a file of a few kB."""
    with h5py.File(tmp_path / "table.hdf5", "w") as file:
        file.create_dataset("embedding", (10**9, 1024), "float32", chunks=(1024, 1024))
    with pytest.raises(CheckpointError, match=r"embedding: wanted 4,096,000,000,000 bytes of numbers, found 0 in the"):
        read_token_embeddings(tmp_path / "table.hdf5")


def test_softmax_of_two_sizes_is_refused(tmp_path):
    files = make_weights(tmp_path, softmax=5)
    options = read_options(files[0])
    damaged(files[1], replace("softmax/b", np.zeros(6, "f4")))
    with pytest.raises(CheckpointError, match=r"softmax/b: wanted shape \[5\], found \[6\]"):
        read_bilm_hdf5(files[1], options)


@pytest.mark.parametrize("content", [b"", b"not HDF5", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000])
def test_what_is_not_hdf5_is_refused_by_name(content, tmp_path):
    options_file, weight_file = make_weights(tmp_path)
    weight_file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"weights\.hdf5: not an HDF5 file of weights, or damaged"):
        read((options_file, weight_file))


def test_absent_files_and_folders_are_refused_by_name(tmp_path):
    options_file, _ = make_weights(tmp_path)
    with pytest.raises(CheckpointError, match=r"nowhere\.hdf5: cannot be read"):
        read((options_file, tmp_path / "nowhere.hdf5"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        read((options_file, tmp_path))


def test_options_of_another_model_are_refused(tmp_path):
    small = make_weights(tmp_path / "small")
    large = make_weights(tmp_path / "large", cell=30, proj=10)
    with pytest.raises(CheckpointError, match=r"W_0: wanted shape \[20, 120\], found \[16, 96\].*and \d+ more"):
        read((large[0], small[1]))
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


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A file-size limit stands for the full disk: one sentence is said, the old file stays, nothing else does."""
    files = make_weights(tmp_path)
    before = files[1].read_bytes()
    script = textwrap.dedent(f"""
        import resource
        from elmo_fast.checkpoints import *
        options = read_options({str(files[0])!r})
        state = read_bilm_hdf5({str(files[1])!r}, options)
        for limit in (0, 5_000, 30_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
            for write in (
                lambda: write_bilm_hdf5({str(files[1])!r}, state, options),
                lambda: save_folder({str(tmp_path)!r}, state, options),
            ):
                try:
                    write()
                except ValueError as error:
                    print(type(error).__name__, error)
    """)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("cannot be written") == len(ran.stdout.splitlines()) == 6, ran.stdout
    assert not ran.stderr
    assert files[1].read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["options.json", "weights.hdf5"]


def test_a_folder_that_takes_no_file_is_named(tmp_path):
    state, options = read(make_weights(tmp_path))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        locked = tmp_path / "weights.hdf5"  # this user may write anywhere: a file in the folder's place
    with pytest.raises(CheckpointError, match=r"x\.hdf5: cannot be written"):
        write_bilm_hdf5(locked / "x.hdf5", state, options)


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    files = make_weights(tmp_path)
    state, options = read(files)
    before = files[1].read_bytes()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(h5py.File, "create_dataset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bilm_hdf5(files[1], state, options)
    assert files[1].read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["options.json", "weights.hdf5"]


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    options_file, weight_file = make_weights(folder, cell=6, proj=4, filters=((1, 2), (2, 3)), layers=1, n_highway=1)
    return read_options(options_file), weight_file.read_bytes(), folder / "damaged.hdf5"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_damage_reads_rightly_shaped_or_is_refused(intact, data):
    """Cut anywhere, or with bytes changed."""
    check_damaged(read_bilm_hdf5, intact, data)


def test_reading_leaves_the_file_alone(tmp_path):
    files = make_weights(tmp_path)
    copy = shutil.copy(files[1], tmp_path / "copy.hdf5")
    state, _ = read(files)
    for tensor in state.values():
        tensor.zero_()
    assert files[1].read_bytes() == copy.read_bytes()
