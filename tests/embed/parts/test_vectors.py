"""ElmoVectors: the sentences of parts and of one file, read at random."""

import pickle

import h5py
import numpy as np
import pytest

from elmo_fast import ElmoVectors
from elmo_fast.embed import merge_parts
from elmo_fast.embed.parts import vectors as vectors_module
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.embed.parts.conftest import embed, made_parts


@pytest.mark.parametrize("kind", ["--all", "--average"])
def test_sentences_of_parts_and_of_one_file(place, tmp_path, monkeypatch, kind):
    """Each at its number, from either end, in slices and in order, whichever part was opened before."""
    monkeypatch.setattr(vectors_module, "OPEN_PARTS", 2)
    folder = made_parts(place, tmp_path / "out", kind)
    for output, form in (("alone.hdf5", "hdf5"), ("alone.safetensors", "safetensors")):
        assert embed(place, tmp_path / output, kind, "--format", form).returncode == 0
    with h5py.File(tmp_path / "alone.hdf5") as file:
        expected = [file[str(index)][()] for index in range(103)]
    for path in (folder, tmp_path / "alone.safetensors"):
        actual = ElmoVectors(path)
        assert len(actual) == 103
        for index in (0, 102, 15, 16, 101, 17, -1, -103, 50):
            np.testing.assert_array_equal(actual[index], expected[index])
        assert all(np.array_equal(*both) for both in zip(actual, expected, strict=True))
        assert all(np.array_equal(*both) for both in zip(actual[10:40:7], expected[10:40:7], strict=True))
        assert actual.lengths().tolist() == [array.shape[-2] for array in expected]
        assert actual.metadata["layers"] == kind[2:]
        for index in (103, -104):
            with pytest.raises(IndexError, match=r"there are 103"):
                actual[index]
        with pytest.raises(ValueError, match="read-only"):
            actual[0][:] = 0
        actual.verify()
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(actual))[16], expected[16])
    lines = (place / "in.txt").read_text().splitlines()
    merge_parts(folder, tmp_path / "merged.safetensors", "safetensors")
    for path in (folder, tmp_path / "alone.safetensors", tmp_path / "merged.safetensors"):
        assert ElmoVectors(path).names() == lines
    assert embed(place, tmp_path / "forgot", kind, "--format", "safetensors", "--forget-sentences").returncode == 0
    assert ElmoVectors(tmp_path / "forgot").names() is None


@pytest.mark.filterwarnings("always:.* blank line")
def test_blank_lines_of_a_text_in_parts(place, tmp_path):
    """A part of nothing but blank lines too; merging gives the bytes of one process."""
    lines = ["a b", "", "c", *[""] * 45, "d e f", " "]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    done = embed(place, tmp_path / "out", "--shard", "0/1", "--part_lines", "16", source=tmp_path / "in.txt")
    assert done.returncode == 0, done.stderr
    assert "47 blank lines (line 2, 4, 5, 6, 7, ...): the output has an empty array" in done.stderr
    for name in ("a.hdf5", "a.safetensors", "a.npz"):
        assert embed(place, tmp_path / name, source=tmp_path / "in.txt").returncode == 0
        merge_parts(tmp_path / "out", tmp_path / f"merged-{name}")
        assert (tmp_path / name).read_bytes() == (tmp_path / f"merged-{name}").read_bytes(), name
    for path in ("out", "a.safetensors"):
        actual = ElmoVectors(tmp_path / path)
        assert actual.lengths().tolist() == [len(line.split()) for line in lines]
        assert [each.shape for each in actual[:3]] == [(2, 16), (0, 16), (1, 16)]
        assert actual.names() == [line.strip() for line in lines]


def test_other_files_are_refused(whole, place, tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(ElmoFastError, match=r"model: no folder of parts, as there is no parts\.json"):
        ElmoVectors(place / "model")
    for name, reader in (("in.txt", ""), ("alone.hdf5", "h5py"), ("x.npz", "numpy.load")):
        np.savez(tmp_path / "x.npz", a=np.eye(2))
        file = (tmp_path if name == "x.npz" else place) / name
        with pytest.raises(CheckpointError, match=rf"{name}: damaged, or no safetensors file \(.*\); .*{reader}"):
            ElmoVectors(file)
    (tmp_path / "x.npz").unlink()
    save_file({"embeddings": np.zeros((3, 2), np.float32)}, tmp_path / "pooled.safetensors")
    with pytest.raises(ElmoFastError, match=r"pooled\.safetensors: no file of token .*--pool\) is read by safet"):
        ElmoVectors(tmp_path / "pooled.safetensors")
    with pytest.raises(ElmoFastError, match=r"x\.npz: the name says the format npz, but hdf5 was chosen"):
        merge_parts(whole, tmp_path / "x.npz", "hdf5")
    merge_parts(whole, tmp_path / "x.npz")
    with pytest.raises(CheckpointError, match=r"nothing: cannot be read"):
        ElmoVectors(tmp_path / "nothing")
    save_file({"x": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ElmoFastError, match=r"other: no file of token vectors that `elmo-fast embed"):
        ElmoVectors(tmp_path / "other")
    save_file({"embeddings": np.zeros((3, 1, 2), np.float32), "offsets": np.zeros(2, np.int64)}, tmp_path / "odd")
    with pytest.raises(CheckpointError, match=r"odd: damaged: its header is not what was written"):
        ElmoVectors(tmp_path / "odd")
    (whole / "part-00001" / "vectors.safetensors").write_bytes((tmp_path / "other").read_bytes())
    actual = ElmoVectors(whole)
    with pytest.raises(CheckpointError, match=r"part-00001/vectors\.safetensors: damaged, or changed"):
        actual.verify()
