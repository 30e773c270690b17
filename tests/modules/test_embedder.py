"""ElmoEmbedder: arrays per sentence, files of vectors, empty sentences, repeatability."""

import io
import json
import weakref

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import sentence_vectors
from elmo_fast.modules.token_vectors import TokenVectors
from elmo_fast.text import survey
from tests.bilm_numpy import BilmNumpy
from tests.modules.conftest import BATCHES

LINES = ["Michael went to the store to buy some eggs .", "Joel rolled down the street .", "test / this", "a b"]


def test_arrays_equal_the_judge(files):
    options_file, weight_file = files()
    embedder, judge = ElmoEmbedder(options_file, weight_file), BilmNumpy(options_file, weight_file)
    for batch in BATCHES:
        for ours, truth in zip(embedder.embed_batch(batch), judge.embed(batch), strict=True):
            assert ours.dtype == np.float32
            assert ours.shape == truth.shape
            assert ours.base is None
            np.testing.assert_allclose(ours, truth, rtol=2e-6, atol=2e-6)


def test_sentences_run_in_batches_in_order(files):
    options_file, weight_file = files()
    sentences = [line.split() for line in LINES]
    wanted = ElmoEmbedder(options_file, weight_file)
    wanted = [*wanted.embed_batch(sentences[:3]), *wanted.embed_batch(sentences[3:])]
    got = list(ElmoEmbedder(options_file, weight_file).embed_sentences(iter(sentences), batch_size=3))
    for ours, theirs in zip(got, wanted, strict=True):
        assert np.array_equal(ours, theirs)
    with pytest.raises(ElmoFastError, match="batch_size must be 1 or more; got 0"):
        next(ElmoEmbedder(options_file, weight_file).embed_sentences(sentences, 0))


def test_empty_sentences(files):
    """[layers, 0, 2D] of the model's own size; alone it leaves the state as it is, beside others it is run."""
    embedder = ElmoEmbedder(*files(proj=6))
    assert embedder.embed_sentence([]).shape == (3, 0, 12)
    assert embedder.elmo_bilm._elmo_lstm._states is None
    arrays = list(embedder.embed_sentences([["This", "is"], []]))
    assert [a.shape for a in arrays] == [(3, 2, 12), (3, 0, 12)]
    assert embedder.elmo_bilm._elmo_lstm._states[0][:, 1].any()
    assert [a.shape for a in embedder.embed_batch([[], []])] == [(3, 0, 12)] * 2
    assert embedder.embed_batch([]) == []


def test_same_sentence_same_vectors_when_asked(files):
    options_file, weight_file = files()
    words = LINES[0].split()
    carried, fresh = ElmoEmbedder(options_file, weight_file), ElmoEmbedder(options_file, weight_file, stateful=False)
    first = carried.embed_sentence(words)
    assert not np.allclose(carried.embed_sentence(words), first)
    carried.reset_states()
    for again in (carried.embed_sentence(words), fresh.embed_sentence(words), fresh.embed_sentence(words)):
        assert np.array_equal(again, first)


def test_slots_of_the_model(files):
    """A model of 12 characters per word is given 12."""
    options_file, weight_file = files(max_characters=12)
    truth = BilmNumpy(options_file, weight_file).embed([["encyclopaedia"]])[0]
    ours = ElmoEmbedder(options_file, weight_file).embed_sentence(["encyclopaedia"])
    np.testing.assert_allclose(ours, truth, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file_of_vectors(files, tmp_path, output_format):
    """AllenNLP's layout: a dataset per line and a JSON index from sentence to dataset."""
    options_file, weight_file = files()
    out = tmp_path / "out.hdf5"
    source = io.StringIO("\n".join(LINES) + "\n")
    ElmoEmbedder(options_file, weight_file).embed_file(source, out, output_format, batch_size=3)
    assert source.closed
    arrays = list(ElmoEmbedder(options_file, weight_file).embed_sentences([line.split() for line in LINES], 3))
    with h5py.File(out) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {line: str(i) for i, line in enumerate(LINES)}
        for i, array in enumerate(arrays):
            wanted = {"all": array, "top": array[2], "average": array.mean(axis=0)}[output_format]
            assert file[str(i)].dtype == np.float32
            assert np.array_equal(file[str(i)][...], wanted)


def test_a_path_another_format_and_progress(files, tmp_path):
    """What the command line writes, from Python: all tokens in one array, in the order of the text."""
    embedder = ElmoEmbedder(*files(), stateful=False)
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    told, settings = [], {"file_format": "safetensors", "dtype": "float16", "max_tokens": 8}
    out = tmp_path / "out"
    count = embedder.embed_file(tmp_path / "in.txt", out, progress=lambda *both: told.append(both), **settings)
    assert count == len(LINES)
    assert told[-1] == (21, 21)
    assert len(told) > 1
    found = load_file(out)
    wanted = [embedder.embed_sentence(line.split()) for line in LINES]
    np.testing.assert_allclose(found["embeddings"], np.concatenate(wanted, axis=1).swapaxes(0, 1), atol=2e-3)
    assert found["offsets"].tolist() == np.cumsum([0, *[array.shape[1] for array in wanted]]).tolist()
    with pytest.raises(ElmoFastError, match="file_format must be one of hdf5, hdf5-flat, safetensors, npz; got 'txt'"):
        embedder.embed_file(tmp_path / "in.txt", out, file_format="txt")
    for wanted, keys in (("keep_lines", False), ("as_keys", True)):
        with pytest.raises(ElmoFastError, match=f"in.txt must be surveyed with {wanted}=True"):
            embedder.embed_file(survey(tmp_path / "in.txt", keep_lines=keys), out, use_sentence_keys=keys)
    with pytest.raises(ElmoFastError, match="dtype must be one of float32, float16; got 'f16'"):
        embedder.embed_file(tmp_path / "in.txt", out, dtype="f16")


@pytest.mark.parametrize("file_format", ["hdf5", "safetensors"])
def test_a_written_batch_is_freed_before_the_next_one_runs(files, tmp_path, monkeypatch, file_format):
    """The vectors of one batch at a time are in memory."""
    made, alive = [], []

    def embed_batch(*arguments, **settings):
        alive.append(sum(reference() is not None for reference in made))
        arrays = original(*arguments, **settings)
        made.extend(map(weakref.ref, arrays))
        return arrays

    original = sentence_vectors.embed_batch
    monkeypatch.setattr(sentence_vectors, "embed_batch", embed_batch)
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    ElmoEmbedder(*files()).embed_file(tmp_path / "in.txt", tmp_path / "out", batch_size=2, file_format=file_format)
    assert alive == [0, 0]


def test_keys_of_a_file_of_vectors(files, tmp_path):
    embedder, out = ElmoEmbedder(*files()), tmp_path / "out.hdf5"
    embedder.embed_file(io.StringIO("a b\nc\na b\n"), out)
    with h5py.File(out) as file:
        assert json.loads(file["sentence_to_index"][0]) == {"a b": "2", "c": "1"}
    embedder.embed_file(io.StringIO("a b\nc\n"), out, forget_sentences=True)
    with h5py.File(out) as file:
        assert set(file) == {"0", "1"}
    embedder.embed_file(io.StringIO("a b\nc\n"), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert set(file) == {"a b", "c"}


def test_a_file_of_vectors_refuses_and_writes_nothing(files, tmp_path):
    embedder, out = ElmoEmbedder(*files()), tmp_path / "out.hdf5"
    for text, settings, message in (
        ("A\n\n \nB\n", {}, "nothing but white space on line 2, 3; remove such lines"),
        ("a\na\n", {"use_sentence_keys": True}, "lines 1 and 2 are the same sentence"),
        ("a\n", {"output_format": "sum"}, "output_format must be one of all, top, average; got 'sum'"),
        ("a / b\n", {"use_sentence_keys": True}, "leave out use_sentence_keys"),
    ):
        with pytest.raises(ElmoFastError, match=message):
            embedder.embed_file(io.StringIO(text), out, **settings)
        assert not list(tmp_path.glob("*.hdf5*")), message


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has a GPU")
def test_a_gpu_that_is_not_there_is_told_as_on_the_command_line():
    """Before a file is read."""
    with pytest.raises(ElmoFastError, match="cuda_device cuda:0: this torch sees 0 CUDA devices"):
        ElmoEmbedder("absent.json", "absent.hdf5", cuda_device=0)
    with pytest.raises(ElmoFastError, match="device cuda:1: this torch sees 0 CUDA devices"):
        TokenVectors(".", device="cuda:1")
