"""bilm-tf's checkpoints: the format by bytes written by hand, the weights as its HDF5 has them, AdaGrad's sums."""

import json

import numpy as np
import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, model_files, read_adagrad_sums, read_bilm_hdf5, read_options
from elmo_fast.checkpoints.tensor_bundle import read_index, read_variable
from elmo_fast.errors import CheckpointError
from tests.support import tensor_bundle
from tests.support.tensor_bundle import arrays_of, training_graph, write_bundle, write_checkpoint
from tests.support.weights import make_weights

# A table of two entries, written out: the header (one shard) and the variable "b" of float32, [2].
BY_HAND = bytes.fromhex(
    "00 00 02"  # shared 0, unshared 0, value of 2 bytes; the key is empty
    "08 01"  # BundleHeaderProto: num_shards 1
    "00 01 0f 62"  # shared 0, unshared 1, value of 15 bytes; the key "b"
    "08 01"  # BundleEntryProto: dtype DT_FLOAT
    "12 04 12 02 08 02"  # shape: one dimension, of 2
    "28 08"  # size 8; shard 0 and offset 0 are not stored
    "35"  # the checksum, four bytes that follow
)


def test_a_file_written_by_hand_is_read(tmp_path):
    """LevelDB's layout, byte by byte: block, type, checksum, restarts, handles, footer of 48 bytes, magic number."""
    numbers = np.array([1.0, -2.5], "<f4").tobytes()
    block = BY_HAND + tensor_bundle.masked(numbers).to_bytes(4, "little") + bytes.fromhex("00000000 01000000")
    assert len(block) == 32
    content = block + b"\0" + tensor_bundle.masked(block + b"\0").to_bytes(4, "little")
    index = bytes.fromhex("00 01 02 62 00 20 00000000 01000000")  # up to "b": the block at 0 of 32 bytes
    content += index + b"\0" + tensor_bundle.masked(index + b"\0").to_bytes(4, "little")
    footer = bytes.fromhex("00 00 25 0e")  # of the metaindex, which is not read; of the index at 37 of 14 bytes
    (tmp_path / "m.index").write_bytes(content + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db"))
    (tmp_path / "m.data-00000-of-00001").write_bytes(numbers)
    bundle = read_index(tmp_path / "m.index")
    assert (bundle.shards, list(bundle.entries)) == (1, ["b"])
    assert read_variable(bundle, "b").tolist() == [1.0, -2.5]


@pytest.fixture
def trained(tmp_path):
    """The folder of a run of bilm-tf, and its weights in HDF5 elsewhere; n_characters is 261, as it is in training."""
    options, weights = make_weights(tmp_path / "hdf5", n_characters=261, softmax=7)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "options.json").write_bytes(options.read_bytes())
    return folder, options, weights


@pytest.mark.parametrize("how", [{}, {"shards": 3, "most": 2}])
def test_a_run_of_bilm_tf_is_the_model_of_its_hdf5(trained, how):
    """Weights and softmax, equal in every bit, from one shard or several; the vectors too."""
    folder, options, weights = trained
    index = write_checkpoint(folder, arrays_of(weights), slots=arrays_of(weights), **how)
    expected = read_bilm_hdf5(weights, read_options(options))
    for read, _ in (load_checkpoint(folder), load_checkpoint(options_file=options, weight_file=index)):
        assert read.keys() == expected.keys()
        assert all(torch.equal(read[name], expected[name]) for name in expected)
    sentence = ["Résumé", "."]
    vectors = ElmoEmbedder(options, weights).embed_sentence(sentence)
    assert (ElmoEmbedder.from_pretrained(folder).embed_sentence(sentence) == vectors).all()


def test_other_graphs_are_read(tmp_path):
    """One layer has no multi_rnn_cell; words in place of characters; names of TensorFlow before 1.2."""
    options, weights = make_weights(tmp_path / "hdf5", words=9, layers=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "options.json").write_bytes(options.read_bytes())
    expected = read_bilm_hdf5(weights, read_options(options))
    for old in (False, True):
        graph = training_graph(arrays_of(weights))
        names = {name: name.replace("multi_rnn_cell/cell_0/", "") for name in graph}
        if old:
            names = {a: b.replace("kernel", "weights").replace("bias", "biases") for a, b in names.items()}
        write_bundle(tmp_path / "run" / "model.ckpt-2", {names[name]: array for name, array in graph.items()})
        read, _ = load_checkpoint(tmp_path / "run")
        assert all(torch.equal(read[name], expected[name]) for name in expected)


@pytest.mark.parametrize("words", [None, 9])
def test_the_sums_are_those_of_the_weights_that_they_are_of(tmp_path, words):
    """An update by them in bilm-tf's layout is the same update in ours, whatever the layouts; the padding's are 1."""
    rng = np.random.default_rng(1)
    options_file, weights = make_weights(tmp_path, words=words, softmax=9)
    options, before = read_options(options_file), arrays_of(weights)
    steps = {name: rng.normal(0, 1, array.shape).astype("f4") for name, array in before.items()}
    sums = {name: rng.uniform(0.5, 9, array.shape).astype("f4") for name, array in before.items()}

    def read(arrays):
        return load_checkpoint(options_file=options_file, weight_file=write_checkpoint(tmp_path, arrays, slots=sums))[0]

    old = read(before)
    gradient = read({name: array - steps[name] for name, array in before.items()})
    new = read({name: array - steps[name] / np.sqrt(sums[name]) for name, array in before.items()})
    actual = read_adagrad_sums(tmp_path / "model.ckpt-1250.index", options)
    assert actual.keys() == old.keys()
    for name in old:
        torch.testing.assert_close(
            old[name] - new[name], (old[name] - gradient[name]) / actual[name].sqrt(), atol=3e-6, rtol=0
        )
    table = "_word_embedding.weight" if words else "_token_embedder._char_embedding_weights"
    assert (actual[table][0] == 1).all()
    without = write_checkpoint(tmp_path, before)
    assert read_adagrad_sums(without, options) == {}


def test_the_checkpoint_is_the_one_that_is_recorded_or_the_newest(trained):
    folder, _, weights = trained
    for step in (900, 1250, 11000):
        write_checkpoint(folder, arrays_of(weights), step)
    write_checkpoint(folder, arrays_of(weights), 1250)
    assert [file.name for file in model_files(folder)] == [
        "options.json",
        "model.ckpt-1250.index",
        "model.ckpt-1250.data-00000-of-00001",
    ]
    (folder / "checkpoint").unlink()
    assert model_files(folder)[1].name == "model.ckpt-11000.index"
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    with pytest.raises(CheckpointError, match=r"checkpoint: wanted the name of a checkpoint .*, found model\.ckpt-7"):
        load_checkpoint(folder)


def test_what_is_wrong_is_said_in_one_sentence_with_the_file(trained):
    folder, options, weights = trained
    arrays = arrays_of(weights)
    write_checkpoint(folder, arrays, shards=2)
    shard = folder / "model.ckpt-1250.data-00001-of-00002"
    content = shard.read_bytes()

    def refused(message):
        with pytest.raises(CheckpointError, match=message) as caught:
            load_checkpoint(folder)
        assert "\n" not in str(caught.value)

    shard.unlink()
    refused(r"1250\.index: wanted 2 shards in its folder; model\.ckpt-1250\.data-00001-of-00002 is missing")
    shard.write_bytes(content[:100])
    refused(r"data-00001-of-00002: lm/\S+: wanted [\d,]+ numbers at byte [\d,]+, found the end of the file")
    write_checkpoint(folder, arrays | {"CNN/b_cnn_0": np.zeros(5, "f4")})
    refused(r"1250\.index: CNN/b_cnn_0: wanted shape \[4\], found \[5\]")
    write_checkpoint(folder, arrays | {"softmax/b": np.zeros(7, "i4")})
    refused(r"lm/softmax/b: wanted floating-point numbers in one piece, found others")
    content = (index := folder / "model.ckpt-1250.index").read_bytes()
    index.write_bytes(content[:-1])
    refused(r"1250\.index: not the index of a TensorFlow checkpoint, or damaged \(it does not end in the magic number")
    index = write_checkpoint(folder, arrays, slots={name: np.zeros_like(array) for name, array in arrays.items()})
    with pytest.raises(CheckpointError, match=r"1250\.index: .*wanted sums of squares above 0"):
        read_adagrad_sums(index, read_options(options))
    (folder / "options.json").write_text(json.dumps({**json.loads(options.read_text()), "bidirectional": False}))
    refused(r"options\.json: bidirectional: wanted true")
