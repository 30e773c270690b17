"""Files of token vectors: any order of writing gives the same bytes, which h5py and safetensors read."""

import time

import h5py
import numpy as np
import pytest

from elmo_fast.embed.token_files import FORMATS, FileLayout

LENGTHS = np.array([3, 0, 1, 40, 7])
WORDS = ["é", "", "a b", "𝄞" * 3, "x" * 70_000]


def written(path, order, layers=2, dtype="float32", keyed=False, file_format="hdf5"):
    """The vectors of each sentence, [L, n, 4] or [n, 4], in a file."""
    rng = np.random.default_rng(0)
    vectors = [rng.standard_normal((layers, n, 4) if layers else (n, 4)).astype(dtype) for n in LENGTHS]
    layout = FileLayout(LENGTHS, layers, 4, np.dtype(dtype), {}, WORDS, keyed)
    with FORMATS[file_format](path, layout) as write:
        for index in order:
            write(index, vectors[index])
    return vectors


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layers", [0, 2])
def test_hdf5_has_a_dataset_for_each_sentence_as_h5py_would_write_it(tmp_path, layers, dtype, keyed):
    vectors = written(tmp_path / "a", [3, 1, 4, 0, 2], layers, dtype, keyed)
    names = {index: WORDS[index] if keyed else str(index) for index in range(5) if LENGTHS[index] or not keyed}
    with h5py.File(tmp_path / "a", "r+") as file:
        assert set(file) - {"sentence_to_index"} == set(names.values())
        for index, name in names.items():
            assert (file[name].dtype, file[name].maxshape, file[name].chunks) == (dtype, vectors[index].shape, None)
            np.testing.assert_array_equal(file[name][()], vectors[index])
        file["more"] = 1  # the library adds to it


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_bytes_do_not_depend_on_the_order_of_the_batches_and_the_time(tmp_path, file_format):
    written(tmp_path / "a", range(5), file_format=file_format)
    if file_format == "hdf5":
        time.sleep(1.1)  # HDF5 can store times in seconds
    written(tmp_path / "b", [4, 2, 0, 1, 3], file_format=file_format)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_vectors_of_another_shape_are_refused(tmp_path):
    """They would overwrite their neighbours."""
    layout = FileLayout(np.array([2, 3]), 0, 4, np.dtype("float32"), {})
    with (
        pytest.raises(ValueError, match=r"sentence 1 must have shape .*; got \(2, 4\)"),
        FORMATS["hdf5"](tmp_path / "out", layout) as write,
    ):
        write(1, np.zeros((2, 4), np.float32))
    assert not list(tmp_path.iterdir())
