"""ElmoEmbedder: arrays per sentence, files of vectors, empty sentences, repeatability."""

import gc
import io
import json
import threading
import weakref

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import BiLM, sentence_vectors
from elmo_fast.modules.embedder import finite
from elmo_fast.modules.token_vectors import TokenVectors
from elmo_fast.text import survey
from elmo_fast.threads import torch_threads
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


def test_a_description_is_one_line(files):
    """Size, width and source."""
    embedder = ElmoEmbedder(*(paths := files()))
    weights = sum(weight.numel() for weight in embedder.elmo_bilm.parameters())
    width = embedder.embed_sentence(["a"]).shape[-1]
    assert repr(embedder) == f"ElmoEmbedder({weights:,} weights, 3 layers of {width} dimensions, from {paths[1]})"
    assert repr(ElmoEmbedder(embedder.elmo_bilm.options, None)).endswith(f"3 layers of {width} dimensions)")


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
    with pytest.raises(
        ElmoFastError, match="file_format must be one of hdf5, hdf5-flat, safetensors, npz, parquet; got 'txt'"
    ):
        embedder.embed_file(tmp_path / "in.txt", out, file_format="txt")
    for wanted, keys in (("keep_lines", False), ("as_keys", True)):
        with pytest.raises(ElmoFastError, match=f"in.txt must be surveyed with {wanted}=True"):
            embedder.embed_file(survey(tmp_path / "in.txt", keep_lines=keys), out, use_sentence_keys=keys)
    with pytest.raises(ElmoFastError, match="dtype must be one of float32, float16; got 'f16'"):
        embedder.embed_file(tmp_path / "in.txt", out, dtype="f16")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("file_format", ["hdf5", "safetensors"])
def test_a_written_batch_is_freed_before_the_next_one_runs(files, tmp_path, monkeypatch, file_format, count):
    """The vectors of one batch at a time are in memory; on two threads also those that are being written."""
    made, alive, original = [], [], sentence_vectors._run

    def run(*arguments):
        alive.append(sum(reference() is not None for reference in made))
        batch = original(*arguments)
        made.append(weakref.ref(batch.layers))  # which alone holds them, or what they are made of
        return batch

    monkeypatch.setattr(sentence_vectors, "_run", run)
    (tmp_path / "in.txt").write_text("\n".join(3 * LINES) + "\n")
    with torch_threads(count):
        ElmoEmbedder(*files()).embed_file(tmp_path / "in.txt", tmp_path / "out", batch_size=2, file_format=file_format)
    assert len(alive) == 6
    assert max(alive) <= (0 if count == 1 else 1)


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("file_format", ["hdf5", "hdf5-flat", "safetensors", "npz"])
def test_a_file_is_the_same_on_any_number_of_threads(files, tmp_path, monkeypatch, file_format, stateful):
    """Byte by byte: on one thread, on two that overlap and, without carried state, in two groups of two."""
    pair, ran, original = files(), [], sentence_vectors._run

    def run(*arguments):
        ran.append(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(sentence_vectors, "_run", run)
    (tmp_path / "in.txt").write_text("".join(f"{line} {number}\n" for number in range(40) for line in LINES))
    found = {}
    for count in (1, 2, 4):
        ran.clear()
        with torch_threads(count):
            settings = {"file_format": file_format, "batch_size": 8, "max_tokens": 60}
            ElmoEmbedder(*pair, stateful=stateful).embed_file(tmp_path / "in.txt", tmp_path / "out", **settings)
        found[count] = (tmp_path / "out").read_bytes()
        assert set(ran) == ({"elmo_fast_0", "elmo_fast_1"} if count == 4 and not stateful else {"MainThread"})
    assert found[1] == found[2] == found[4]


@pytest.mark.parametrize(("count", "stateful"), [(1, True), (2, True), (2, False), (4, False)])
def test_a_failure_in_the_middle_names_its_line_and_leaves_nothing(files, tmp_path, monkeypatch, count, stateful):
    """Of vectors, of the words' ids and of the text, on whichever thread it happens."""
    source, embedder, ids, check = (
        tmp_path / "in.txt",
        ElmoEmbedder(*files(), stateful=stateful),
        BiLM.batch_to_ids,
        finite,
    )

    def write(numbers):
        source.write_text("".join(f"word {number}\n" for number in range(numbers)))

    def spoilt(vectors, dtype, what):
        return check(vectors * np.nan if what.startswith("line 51 of") else vectors, dtype, what)

    def refusing(bilm, batch):
        if ["word", "51"] in batch:
            raise ElmoFastError("no ids for word 51")
        return ids(bilm, batch)

    write(99)
    text = survey(source, keep_lines=True)
    for change, said in (
        (lambda patch: patch.setattr("elmo_fast.modules.embedder.finite", spoilt), "line 51 of .*in.txt gave vectors"),
        (lambda patch: patch.setattr(BiLM, "batch_to_ids", refusing), "no ids for word 51"),
        (lambda patch: write(70), "it had 99 lines and now has 70"),
    ):
        with monkeypatch.context() as patch, torch_threads(count):
            change(patch)
            with pytest.raises(ElmoFastError, match=said):
                embedder.embed_file(text, tmp_path / "out", batch_size=8)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "model0"]
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("elmo_fast")]


def test_a_consumer_may_stop_or_wait_between_sentences(files):
    """On two threads too: sentences are read, and the state is carried, no further than the batch that is asked for."""
    taken, embedder, other = [], ElmoEmbedder(*files()), ElmoEmbedder(*files())
    with torch_threads(2):
        vectors = embedder.embed_sentences((taken.append(line) or line.split() for line in LINES), 2)
        next(vectors)
        vectors.close()
    other.embed_batch([line.split() for line in LINES[:2]])
    assert taken == LINES[:3]  # with the third the batch of two is known to be complete
    assert np.array_equal(embedder.embed_sentence(["a"]), other.embed_sentence(["a"]))


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
        ("\n \n", {}, "the input is empty: every line is blank: it contains no sentence"),
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
    with pytest.raises(ElmoFastError, match=r"cuda_device must be .* sees 0 CUDA devices; got 'cuda:0'"):
        ElmoEmbedder("absent.json", "absent.hdf5", cuda_device=0)
    with pytest.raises(ElmoFastError, match=r"device must be .* sees 0 CUDA devices; got 'cuda:1'"):
        TokenVectors(".", device="cuda:1")


@pytest.mark.parametrize(
    ("device", "settings", "counts"),
    [
        ("cpu", {}, [64, 64, 64, 8]),
        ("meta", {}, [200]),
        ("meta", {"batch_size": 64}, [64, 64, 64, 8]),
        ("meta", {"stateful": True}, [64, 64, 64, 8]),
        ("meta", {"max_tokens": 400}, [100, 100]),
    ],
)
def test_a_device_other_than_the_cpu_takes_batches_by_tokens(files, monkeypatch, device, settings, counts):
    """Unless a batch's size is named, or decides which sentence continues which."""
    ran = []
    monkeypatch.setattr(sentence_vectors, "_run", lambda bilm, prepared, *rest: ran.append(len(prepared.ids)))
    bilm = BiLM(*files()).to(device)
    list(sentence_vectors.run_batches(bilm, [["a", "b", "c", "d"]] * 200, **settings))
    assert ran == counts


def test_the_same_sentence_gives_the_same_vectors_unless_state_is_asked_for(files):
    """`from_pretrained` is stateless; the constructor is AllenNLP's, whose vectors `stateful=True` gives too."""
    folder, words = files()[0].parent, ["I", "like", "Berlin"]

    def twice(embedder):
        return [embedder.embed_sentence(words) for _ in range(2)]

    first, second = twice(ElmoEmbedder.from_pretrained(folder))
    np.testing.assert_array_equal(first, second)
    carried = twice(ElmoEmbedder.from_pretrained(folder, stateful=True))
    allennlps = twice(ElmoEmbedder(*files()))
    np.testing.assert_array_equal(carried, allennlps)
    np.testing.assert_array_equal(carried[0], first)
    assert np.abs(carried[1][1:] - first[1:]).max() > 1e-3
    elmo = Elmo.from_pretrained(folder, dropout=0.0).eval()
    mixed = [elmo(elmo.batch_to_ids([words]))["elmo_representations"][0] for _ in range(2)]
    assert torch.equal(*mixed)


@pytest.mark.parametrize("pool", ["mean", "max", "first_last"])
def test_one_vector_per_sentence(files, pool):
    """Strings or words, in any order and company: numpy, torch and pandas hold the same numbers."""
    embedder, texts = ElmoEmbedder(*files()), ["I like Berlin", "", "So do I ."]
    vectors = embedder.encode(texts, pool)
    layers = embedder.embed_sentence(texts[2].split())
    half = layers.shape[-1] // 2
    expected = {
        "mean": layers.mean(1),
        "max": layers.max(1),
        "first_last": np.concatenate([layers[:, -1, :half], layers[:, 0, half:]], axis=1),
    }[pool]
    top, both = embedder.encode(texts, pool, layers="top"), embedder.encode([texts[2].split()], pool, layers=[0, 2])
    np.testing.assert_allclose(top[2], expected[2], atol=1e-6)
    np.testing.assert_allclose(both[0], expected[[0, 2]].reshape(-1), atol=1e-6)
    assert vectors.shape == (3, 2 * half)
    assert vectors.dtype == np.float32
    assert not vectors[1].any()
    np.testing.assert_allclose(embedder.encode(texts[0], pool), vectors[0], atol=1e-6)
    assert torch.equal(embedder.encode(texts, pool, "torch"), torch.from_numpy(vectors))
    table = embedder.encode(texts, pool, "pandas")
    assert list(table.index) == texts
    np.testing.assert_array_equal(table.to_numpy(), vectors)
    assert embedder.encode([], pool).shape == (0, 2 * half)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pool": "sum"}, "pool must be one of mean, max, first_last; got 'sum'"),
        ({"output": "list"}, "output must be one of numpy, torch, pandas; got 'list'"),
        ({"layers": 7}, "layers must be"),
    ],
)
def test_encode_names_the_wrong_argument(files, arguments, message):
    with pytest.raises(ElmoFastError, match=message):
        ElmoEmbedder(*files()).encode(["I like Berlin"], **arguments)
