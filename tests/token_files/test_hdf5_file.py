"""HDF5 files laid out by hand: the library reads them, adds to them, and finds what it would have written itself."""

import h5py
import numpy as np
import pytest

from elmo_fast.token_files import FORMATS, Contents
from elmo_fast.token_files.hdf5_file import CHILDREN, ENTRIES, layout

# Around a full leaf, a full node of one level, and a full node of two.
COUNTS = [1, 2, ENTRIES, ENTRIES + 1, ENTRIES * CHILDREN, ENTRIES * CHILDREN + 1, ENTRIES * CHILDREN**2 + 1]


def written(path, names, shapes, dtype):
    """A file of datasets that hold their own numbers modulo 1000; its size."""
    planned = layout(names, shapes, dtype)
    with open(path, "wb") as file:
        file.write(planned.header)
        for index, (shape, start) in enumerate(zip(shapes, planned.starts, strict=True)):
            assert file.tell() == start
            file.write(np.full(shape, index % 1000, dtype).tobytes())
    return planned.end


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_dataset_is_found_by_name_and_in_order(tmp_path, count, dtype):
    shapes = np.stack([np.full(count, 2), np.arange(count) % 3 + 1], 1)
    names = list(map(str, range(count)))
    assert written(tmp_path / "a", names, shapes, dtype) == (tmp_path / "a").stat().st_size
    with h5py.File(tmp_path / "a") as file:
        assert list(file) == sorted(names)
        assert "nothing" not in file
        for index in {*range(0, count, 61), count - 1}:
            found = file[names[index]]
            assert (found.shape, found.maxshape, found.dtype) == (tuple(shapes[index]),) * 2 + (np.dtype(dtype),)
            assert (found[()] == index % 1000).all()


@pytest.mark.parametrize("count", COUNTS)
def test_the_library_adds_to_the_file(tmp_path, count):
    """Datasets at both ends and in the middle, so that leaves, nodes and the heap grow; attributes; a removal."""
    names = [f"{index:05}" for index in range(count)]
    written(tmp_path / "a", names, np.full((count, 3), 2), np.float32)
    added = ["", "sentence_to_index", *(f"{index:05}x" for index in range(0, count, 7))]
    with h5py.File(tmp_path / "a", "r+") as file:
        for name in added[1:]:
            file[name] = name
        file[names[0]].attrs["about"] = "first"
        del file[names[-1]]
    with h5py.File(tmp_path / "a") as file:
        assert list(file) == sorted([*names[:-1], *added[1:]])
        assert all(file[name].asstr()[()] == name for name in added[1:])
        assert count == 1 or file[names[0]].attrs["about"] == "first"
        assert all((file[name][()] == index % 1000).all() for index, name in list(enumerate(names[:-1]))[::13])


def test_names_are_sorted_as_the_library_sorts_them(tmp_path):
    """By their bytes, of any length and alphabet."""
    words = ["é", "e", "z", "ﬀ", "𝄞", "a b", "a  b", "..", "Z", "x" * 7, "x" * 8, "x" * 9, "y" * 70_000, "0" * 16]
    names = words + [word + str(number) for word in words for number in range(5)]
    written(tmp_path / "a", names, np.full((len(names), 2), 1), np.float32)
    with h5py.File(tmp_path / "a") as file, h5py.File(tmp_path / "b", "w") as judge:
        for index, name in enumerate(names):
            judge[name] = np.full((1, 1), index, np.float32)
            assert file[name][0, 0] == index
        assert list(file) == list(judge)


def test_the_file_says_what_the_library_says(tmp_path):
    """Types, spaces and creation properties, of every rank and dtype that embed writes."""
    for dtype, sides in ((np.float32, [3, 4, 5]), (np.float16, [3, 4, 5]), (np.float32, [4, 5]), (np.float16, [4, 5])):
        written(tmp_path / "a", ["s"], np.array([sides]), dtype)
        with h5py.File(tmp_path / "b", "w") as judge:
            judge.create_dataset("s", data=np.zeros(sides, dtype))
        with h5py.File(tmp_path / "a") as file, h5py.File(tmp_path / "b") as judge:
            ours, theirs = file["s"].id, judge["s"].id
            assert ours.get_type().equal(theirs.get_type())
            assert ours.get_type().encode() == theirs.get_type().encode()
            assert ours.get_space().encode() == theirs.get_space().encode()
            assert ours.get_create_plist().equal(theirs.get_create_plist())
            assert ours.get_storage_size() == theirs.get_storage_size()
            assert file.libver == judge.libver


def test_vectors_of_another_shape_are_refused(tmp_path):
    """They would overwrite their neighbours."""
    contents = Contents(np.array([2, 3]), 0, 4, np.dtype("float32"), {})
    with (
        pytest.raises(ValueError, match=r"sentence 1 must have shape .*; got \(2, 4\)"),
        FORMATS["hdf5"](tmp_path / "out", contents) as write,
    ):
        write(1, np.zeros((2, 4), np.float32))
    assert not list(tmp_path.iterdir())
