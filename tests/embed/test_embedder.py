"""ElmoEmbedder: arrays per sentence, files of vectors, empty sentences, repeatability."""

import dataclasses
import gc
import io
import threading
import weakref

import numpy as np
import pytest
import torch

from elmo_fast import BiLM, Elmo, ElmoEmbedder
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.embed import layers
from elmo_fast.embed.sentence_vectors import run_batches
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.text.sources import TextFile
from tests.modules.conftest import BATCHES
from tests.support.bilm_numpy import BilmNumpy
from tests.support.hooks import called

LINES = ["Michael went to the store to buy some eggs .", "Joel rolled down the street .", "test / this", "a b"]


def test_arrays_equal_the_judge(files):
    options_file, weight_file = files()
    embedder, judge = ElmoEmbedder(options_file, weight_file), BilmNumpy(options_file, weight_file)
    for batch in BATCHES:
        for actual, truth in zip(embedder.embed_batch(batch), judge.embed(batch), strict=True):
            assert actual.dtype == np.float32
            assert actual.shape == truth.shape
            assert actual.base is None
            np.testing.assert_allclose(actual, truth, rtol=2e-6, atol=2e-6)


def test_empty_sentences(files):
    """[layers, 0, 2D] of the model's own size; alone it leaves the state as it is, among others it is run."""
    embedder = ElmoEmbedder(*files(proj=6))
    assert embedder.embed_sentence([]).shape == (3, 0, 12)
    assert embedder.elmo_bilm._elmo_lstm._states is None
    arrays = list(embedder.embed_sentences([["This", "is"], []]))
    assert [a.shape for a in arrays] == [(3, 2, 12), (3, 0, 12)]
    assert embedder.elmo_bilm._elmo_lstm._states[0][:, 1].any()
    assert [a.shape for a in embedder.embed_batch([[], []])] == [(3, 0, 12)] * 2
    assert embedder.embed_batch([]) == []


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("file_format", ["hdf5", "safetensors"])
def test_a_written_batch_is_freed_before_the_next_one_runs(files, tmp_path, file_format, count):
    """The vectors of one batch at a time are in memory; on two threads also those that are being written."""
    outputs, alive = [], []

    def beginning(inputs):
        alive.append(sum(reference() is not None for reference in outputs))

    (tmp_path / "in.txt").write_text("\n".join(3 * LINES) + "\n")
    with torch_threads(count), called(ElmoLstm, beginning, lambda output: outputs.append(weakref.ref(output))):
        ElmoEmbedder(*files()).embed_file(tmp_path / "in.txt", tmp_path / "out", batch_size=2, file_format=file_format)
    assert len(alive) == 6
    assert max(alive) <= (0 if count == 1 else 1)


@pytest.mark.parametrize(
    ("file_format", "stateful"),
    [("hdf5", True), ("hdf5", False), ("hdf5-flat", False), ("safetensors", False), ("npz", True)],
)
def test_a_file_is_the_same_on_any_number_of_threads(files, tmp_path, file_format, stateful):
    """Byte by byte: on one thread, on two that overlap and, without carried state, in two groups of two."""
    pair, ran = files(), []
    (tmp_path / "in.txt").write_text("".join(f"{line} {number}\n" for number in range(40) for line in LINES))
    actual = {}
    for count in (1, 2, 4):
        ran.clear()
        with torch_threads(count), called(ElmoLstm, lambda inputs: ran.append(threading.current_thread().name)):
            settings = {"file_format": file_format, "batch_size": 8, "max_tokens": 60}
            ElmoEmbedder(*pair, stateful=stateful).embed_file(tmp_path / "in.txt", tmp_path / "out", **settings)
        actual[count] = (tmp_path / "out").read_bytes()
        assert set(ran) == ({"elmo_fast_0", "elmo_fast_1"} if count == 4 and not stateful else {"MainThread"})
    assert actual[1] == actual[2] == actual[4]


@pytest.mark.parametrize(("count", "stateful"), [(1, True), (2, True), (2, False), (4, False)])
def test_a_failure_in_the_middle_names_its_line_and_leaves_nothing(files, tmp_path, monkeypatch, count, stateful):
    """Of vectors, of the words' ids and of the text, on whichever thread it happens."""
    source, embedder = tmp_path / "in.txt", ElmoEmbedder(*files(), stateful=stateful)
    letter, calls, from_numpy = (
        embedder.elmo_bilm._token_embedder._char_embedding_weights[1 + ord("q")],
        [],
        torch.from_numpy,
    )

    def write(numbers):
        source.write_text("".join("word q\n" if number == 50 else f"word {number}\n" for number in range(numbers)))

    def refusing(array):
        calls.append(array)
        if len(calls) > 12:  # two of each batch
            raise MemoryError("no ids of the seventh batch")
        return from_numpy(array)

    class Text(TextFile):
        after = 99

        def sentences(self):
            yield from super().sentences()
            write(self.after)

    write(99)
    text = Text(source)
    for change, error, message in (
        (lambda patch: letter.data.fill_(np.nan), ElmoFastError, "line 51 of .*in.txt gave vectors"),
        (lambda patch: patch.setattr(torch, "from_numpy", refusing), MemoryError, "no ids of the seventh batch"),
        (lambda patch: setattr(text, "after", 70), ElmoFastError, "changed while being read, at line 71"),
    ):
        with monkeypatch.context() as patch, torch_threads(count):
            change(patch)
            with pytest.raises(error, match=message):
                embedder.embed_file(text, tmp_path / "out", batch_size=8)
        letter.data.fill_(0.5)
        embedder.elmo_bilm.reset_states()
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


def test_a_call_with_too_few_or_misplaced_arguments_names_the_way(files):
    with pytest.raises(ElmoFastError, match=r"'weight_file'; .*, write ElmoEmbedder\.from_pretrained\('mini'\)"):
        ElmoEmbedder("small")
    with pytest.raises(ElmoFastError, match=r"'options_file'; .*from_pretrained\('original', stateful=True"):
        ElmoEmbedder(cuda_device=0)
    with pytest.raises(ElmoFastError, match=r"cuda_device must be the number of a GPU, or -1 .*; got 'cuda:0'"):
        ElmoEmbedder(*files(), "cuda:0")


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
def test_a_device_other_than_the_cpu_takes_batches_by_tokens(files, device, settings, counts):
    """Unless a batch's size is named, or decides which sentence continues which."""
    ran = run_batches(BiLM(*files()).to(device), [["a", "b", "c", "d"]] * 200, **settings)
    assert [len(batch.sentences) for batch in ran] == counts


@pytest.mark.parametrize(("stateful", "counts"), [(False, [1, 1, 1]), (True, [3])])
def test_without_carried_state_a_batch_is_bounded_by_its_tokens(files, stateful, counts):
    """Three sentences of 10,000 words do not run together unless the state passes through all of them."""
    ran = run_batches(BiLM(*files()), [["a"] * 10_000] * 3, stateful=stateful)
    assert [len(batch.sentences) for batch in ran] == counts


def test_equal_sentences_have_equal_vectors_unless_stateful(files):
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


@pytest.mark.parametrize("pool", ["mean", "first_last"])
def test_one_vector_per_sentence(files, pool):
    """Strings or words, in any order and company: numpy, torch and pandas hold the same numbers."""
    embedder, texts = ElmoEmbedder(*files()), ["I like Berlin", "", "So do I ."]
    vectors = embedder.encode(texts, pool)
    expected = layers.pool(embedder.embed_sentence(texts[2].split()), pool)
    half = expected.shape[-1] // 2
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
    assert list(table.columns) == [f"elmo_{number}" for number in range(2 * half)]
    np.testing.assert_array_equal(table.to_numpy(), vectors)
    assert embedder.encode([], pool).shape == (0, 2 * half)


def test_strings_are_raw_text_and_lists_and_files_are_tokens(files, tmp_path):
    """Without a stored tokenizer; "whitespace" if asked for, and a stored one. Files are split at white space."""
    embedder, raw, tokens = ElmoEmbedder(*files(), stateful=False), "So do I.", ["So", "do", "I."]
    expected, split = embedder.encode([["So", "do", "I", "."], tokens]), embedder.encode(raw)
    np.testing.assert_allclose(split, expected[0], atol=1e-6)
    for by_space in ("whitespace", str.split):
        np.testing.assert_allclose(embedder.encode(raw, tokenizer=by_space), expected[1], atol=1e-6)
    with pytest.raises(ElmoFastError, match=r"tokenizer must be one of whitespace, basic, spacy, logs, .*; got 3"):
        embedder.encode(raw, tokenizer=3)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    embedder.embed_file(io.StringIO(raw), tmp_path / "out.npz", "average", pool="mean")
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["embeddings"][0], expected[1], atol=1e-6)
    embedder.elmo_bilm.options = dataclasses.replace(embedder.elmo_bilm.options, tokenizer="whitespace")
    np.testing.assert_allclose(embedder.encode(raw), expected[1], atol=1e-6)


def test_encode_by_the_names_of_sentence_transformers(files, capsys):
    """Lengths are 1 (or 0), the tensor is the array, and the bar is on the standard error with the right total."""
    embedder, texts = ElmoEmbedder(*files()), ["I like Berlin", "", "So do I ."]
    vectors = embedder.encode(texts)
    assert capsys.readouterr().err == ""
    tensor = embedder.encode(
        texts, batch_size=2, show_progress_bar=True, normalize_embeddings=True, convert_to_tensor=True
    )
    printed = capsys.readouterr()
    assert (printed.out, "3/3" in printed.err) == ("", True)
    assert isinstance(tensor, torch.Tensor)
    unit = tensor.numpy()
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(vectors, axis=1, keepdims=True), vectors, atol=1e-6)
    rows = embedder.encode(texts, convert_to_numpy=False, device="cpu")
    assert isinstance(rows, list)
    assert torch.equal(torch.stack(rows), torch.from_numpy(vectors))


def test_an_embedder_is_moved_and_saved_as_a_module_is(files, tmp_path):
    """What is saved gives the same vectors; a device that holds no values shows that the model was moved."""
    embedder = ElmoEmbedder(*files(proj=6), stateful=False)
    assert embedder.get_output_dim() == embedder.embed_sentence(["a"]).shape[2] == 12
    embedder.save_pretrained(tmp_path / "saved")
    again = ElmoEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(again.embed_sentence(["a", "b"]), embedder.embed_sentence(["a", "b"]))
    assert (again.to("cpu").device.type, again.cuda_device) == ("cpu", -1)
    assert again.to("meta").device.type == "meta"


def test_similarity_is_the_cosine_of_each_pair(files):
    """Arrays give an array, a tensor gives a tensor, one vector is a row; zeros have cosine 0."""
    embedder, rng = ElmoEmbedder(*files()), np.random.default_rng(0)
    a, b = rng.standard_normal((3, 8)).astype(np.float32), rng.standard_normal((2, 8))
    b[1] = 0
    expected = [[x @ y / (np.linalg.norm(x) * np.linalg.norm(y) or 1) for y in b] for x in a]
    cosines = embedder.similarity(a, b)
    assert isinstance(cosines, np.ndarray)
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    one = embedder.similarity(a[0], torch.from_numpy(b))
    assert isinstance(one, torch.Tensor)
    np.testing.assert_allclose(one, expected[:1], atol=1e-6)
    table = embedder.encode(["a b", "c"], output="pandas")
    np.testing.assert_allclose(np.diag(embedder.similarity(table, table)), 1, atol=1e-6)
    for wrong in (b[:, :3], b[None]):
        with pytest.raises(ElmoFastError, match=r"a and b must be vectors .*; got the shapes \[3, 8\] and \["):
            embedder.similarity(a, wrong)


def test_similarity_of_what_holds_no_vectors_is_refused():
    """Texts, rows of several lengths, and a table with text next to the vectors, whose columns of vectors are named."""
    pandas, vectors = pytest.importorskip("pandas"), np.float32([[1, 0], [0, 2]])
    table = pandas.DataFrame({"text": ["a", "b"], "elmo_0": vectors[:, 0], "elmo_1": vectors[:, 1]})
    for wrong in (["a b", "c"], [[1.0], [1.0, 2.0]], None, table, pandas.Series(list(vectors))):
        for name, arguments in (("a", (wrong, vectors)), ("b", (vectors, wrong))):
            with pytest.raises(ElmoFastError, match=rf"^{name} must be vectors \[N, W\] or \[W\] .*filter.*; got "):
                ElmoEmbedder.similarity(*arguments)
    np.testing.assert_array_equal(ElmoEmbedder.similarity(table.filter(like="elmo_"), vectors), np.eye(2))


def test_a_repeated_index_is_said_where_a_table_is_returned(files):
    """Joining on it would cross rows; a unique one, and an array as output, give no warning."""
    pandas, embedder = pytest.importorskip("pandas"), ElmoEmbedder(*files())
    part = pandas.DataFrame({"text": ["I like Berlin", "So do I ."]})
    table = pandas.concat([part, part])
    with pytest.warns(
        UserWarning, match=r"index of sentences has the label 0 more than once: .*reset_index\(drop=True\)"
    ):
        assert len(table.join(embedder.encode(table["text"], output="pandas"))) == 8
    embedder.encode(table["text"])
    table = table.reset_index(drop=True)
    joined = table.join(embedder.encode(table["text"], output="pandas"))
    np.testing.assert_array_equal(joined.filter(like="elmo_"), embedder.encode(list(table["text"])))


EMBED, ENCODE = "I like Berlin\nSo do I .\n", ["I like Berlin"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, out: e.embed_file(io.StringIO("\n \n"), out), "the input is empty: every line is blank"),
        (lambda e, out: e.embed_file(io.StringIO(EMBED), out, "sum"), "output_format must be one of all, top, average"),
        (lambda e, out: e.embed_file(io.StringIO(EMBED), out, dtype="f16"), "dtype must be one of float32, float16"),
        (
            lambda e, out: e.embed_file(io.StringIO(EMBED), out, file_format="txt"),
            "file_format must be one of hdf5, hdf5-flat, safetensors, npz, parquet, jsonl; got 'txt'",
        ),
        (lambda e, out: e.encode(ENCODE, output="list"), "output must be one of numpy, torch, pandas; got 'list'"),
        (
            lambda e, out: e.encode(ENCODE, output="pandas", convert_to_tensor=True),
            'convert_to_tensor is output="torch"',
        ),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_written(files, tmp_path, call, message):
    with pytest.raises(ElmoFastError, match=message):
        call(ElmoEmbedder(*files()), tmp_path / "out.hdf5")
    assert not list(tmp_path.glob("*.hdf5*"))


def test_a_stream_is_closed_and_progress_reported(files, tmp_path):
    """The number of lines is returned; the last report is of all tokens."""
    embedder, source, reports = ElmoEmbedder(*files(), stateful=False), io.StringIO("\n".join(LINES)), []
    count = embedder.embed_file(source, tmp_path / "out.npz", max_tokens=8, progress=lambda *both: reports.append(both))
    assert source.closed
    assert count == len(LINES)
    assert reports[-1] == (21, 21)
    assert len(reports) > 1
