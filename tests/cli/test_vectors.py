"""neighbours, with the cache that is written once and never trusted damaged, and cache-vocab."""

import os
import re
import shutil
import warnings

import h5py
import numpy as np
import pytest
import torch

from elmo_fast import ElmoEmbedder, SentenceIndex
from elmo_fast._io.atomic_folder import write_manifest
from elmo_fast.embed.token_files import VECTORS
from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.text import Vocabulary
from tests.cli.conftest import SENTENCES, pair, ran, refused
from tests.support.command_line import elmo_fast
from tests.support.hooks import called
from tests.support.weights import make_weights
from tests.text.test_sources import write_table


@pytest.fixture
def ask(toy, text):
    """Runs a query; returns what it prints, or its error. words: more options; model, corpus: in place of the usual."""

    def run(*words, status=0, model=toy, corpus=text, warnings=()):
        query = ["--corpus", corpus, "--query", "A cat sat", "--index", 1, "--topn", 4, "-q"]
        done = elmo_fast("neighbours", *pair(model), *query, *words)
        assert done.returncode == status, done.stderr
        assert [each for each in warnings if each not in done.stderr] == []
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def embedded():
    """Return the batches embedded so far, including the query's."""
    batches = []
    with called(ElmoLstm, batches.append):
        yield batches


@pytest.mark.parametrize("layer", ["all", "average"])
def test_the_answers_are_those_without_a_cache(ask, tmp_path, embedded, layer):
    """Written, and read again: then the query alone is embedded."""
    cache = ["--cache", str(tmp_path / "tokens")]
    plain = ask("--layer", layer)
    assert ask("--layer", layer, *cache) == plain
    before = len(embedded)
    assert ask("--layer", layer, *cache) == plain
    assert len(embedded) == before + 1


def test_a_file_of_all_layers_serves_each(ask, tmp_path, embedded):
    cache = ["--cache", str(tmp_path / "tokens")]
    ask("--layer", "all", *cache)
    before = len(embedded)
    for layer in ("0", "1", "top"):
        assert ask("--layer", layer, *cache) == ask("--layer", layer)
    assert len(embedded) == before + 3 + 3 * 2  # a query each with the cache; a query and the text each without
    assert "is of layers 0, 1, 2 only" in ask("--layer", "average", *cache, status=2)


def test_a_cache_of_something_else_is_refused_and_kept(ask, tmp_path):
    """Another text, model or precision, or something else than a cache."""
    path = tmp_path / "tokens"
    cache = ["--cache", str(path)]
    ask(*cache)
    whole = (path / VECTORS).read_bytes()
    (tmp_path / "other.txt").write_text("The cat sat .\n")
    assert "is of a different corpus" in ask(*cache, corpus=str(tmp_path / "other.txt"), status=2)
    (tmp_path / "model").mkdir()
    other = tuple(map(str, make_weights(tmp_path / "model", seed=5)))
    assert "is of a different model" in ask(*cache, model=other, status=2)
    assert re.search(r"a different precision \(float32.*, not bfloat16", ask(*cache, "--precision=bfloat16", status=2))
    assert (path / VECTORS).read_bytes() == whole
    write_manifest(tmp_path / "model")
    (tmp_path / "diary").write_text("a diary")
    for name in ("diary", "model"):
        assert "is no folder of vectors" in ask("--cache", str(tmp_path / name), status=2)
    assert (tmp_path / "diary").read_text() == "a diary"


def test_no_room_is_told_before_anything_is_embedded(ask, tmp_path, monkeypatch, embedded):
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 10))
    assert " and 10 bytes are free" in ask("--cache", str(tmp_path / "tokens"), status=2)
    assert len(embedded) == 1
    assert not (tmp_path / "tokens").exists()


@pytest.mark.filterwarnings("always")
def test_a_damaged_file_is_told_and_written_again(ask, tmp_path):
    """A number changed, an end cut off: one warning, and the answers are right."""
    path = tmp_path / "tokens"
    plain = ask("--cache", str(path))
    file = path / VECTORS
    whole = file.read_bytes()
    for data in (whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:], whole[:-64]):
        file.write_bytes(data)
        assert ask("--cache", str(path), warnings=["warning: ", "damaged, ", "it is written again"]) == plain
        assert file.read_bytes() == whole


@pytest.mark.parametrize("layer", ["0", "top", "average"])
def test_neighbours_are_those_of_a_plain_search(toy, text, layer):
    """Cosines of all tokens with the query's, computed one pair at a time."""
    query = "A cat sat down ."
    asked = ["--corpus", text, "--query", query, "--index", 1, "--topn", 5, "--layer", layer, "-q"]
    lines = ran("neighbours", *pair(toy), *asked).stdout.splitlines()
    pick = {"0": lambda v: v[0], "top": lambda v: v[-1], "average": lambda v: v.mean(0)}[layer]
    embedder = ElmoEmbedder(*toy, stateful=False)
    target = pick(embedder.embed_sentence(query.split()))[1]
    scored = []
    for i, sentence in enumerate(SENTENCES):
        for j, vector in enumerate(pick(embedder.embed_sentence(sentence.split()))):
            cosine = float(vector @ target / np.linalg.norm(vector) / np.linalg.norm(target))
            scored.append((-round(cosine, 3), i + 1, j))
    assert lines[0].startswith(f"A [cat] sat down .   layer {'2' if layer == 'top' else layer}")
    assert len(lines) == 6
    actual = [float(line.split()[1]) for line in lines[1:]]
    assert actual == sorted(actual, reverse=True)
    np.testing.assert_allclose(actual, [-cosine for cosine, _, _ in sorted(scored)[:5]], atol=2e-3)
    best = min(scored)[1]
    assert f"line {best}: " in lines[1]
    assert "[" in lines[1]


RAW = ["The cat sat.", "A dog ran up the hill and back.", "", "The cat sat on the hill.", "the cat sat .", "Back!"]


def test_nearest_sentences_are_those_of_encode(toy, tmp_path):
    """Text split at white space, as every file, or as asked for; every line but the blank one, in any batches.

    Raw text is warned of, as by embed.
    """
    (tmp_path / "in.txt").write_text("\n".join(RAW))
    asked = ["neighbours", *pair(toy), tmp_path / "in.txt", "--query", "A cat sat.", "--pool", "first_last", "-q"]
    embedder, texts = ElmoEmbedder(*toy, stateful=False), [line for line in RAW if line]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        unnamed = ran(*asked)
    assert "in.txt looks like raw text; --tokenizer basic" in unnamed.stderr
    assert unnamed.stdout == ran(*asked, "--tokenizer", "whitespace").stdout
    query, vectors = (embedder.encode(each, "first_last", tokenizer="basic") for each in ("A cat sat.", texts))
    cosines = embedder.similarity(query, vectors)[0]
    order = np.argsort(-cosines)[:4].tolist()
    places = [f"line {RAW.index(texts[row]) + 1}: {texts[row]}" for row in order]
    rows = [f"{n:>3}  {cosines[row]:.4f}  {place}" for n, (row, place) in enumerate(zip(order, places, strict=True), 1)]
    printed = ran(*asked, "--tokenizer", "basic", "--batch_size", 2, "--topn", 4).stdout
    assert printed.splitlines() == ["A cat sat.   layer average", *rows]


def test_many_queries_and_a_cache_that_is_written_once(toy, text, tmp_path, embedded):
    """The same answers without a cache, by the command that writes it and by the next, which embeds the queries alone.

    Another text, tokenizer, pool or way of removing the mean is refused; Python opens the folder.
    """
    (tmp_path / "queries.txt").write_text("A cat sat .\n\nThe dog\n")
    asked = ["--query_file", tmp_path / "queries.txt", "--topn", 2, "--layer", "all", "-q", *pair(toy)]
    cache = [*asked, "--cache", tmp_path / "index"]
    plain = ran("neighbours", text, *asked).stdout
    assert [line for line in plain.splitlines() if "layer" in line] == [
        f"{query}   layer {layer}" for query in ("A cat sat .", "The dog") for layer in range(3)
    ]
    assert ran("neighbours", text, *cache).stdout == plain
    before = len(embedded)
    assert ran("neighbours", text, *cache).stdout == plain
    assert len(embedded) <= before + 3  # the queries, for each layer, if no CUDA graph replays them
    embedder = ElmoEmbedder(*toy, cuda_device=torch.cuda.device_count() - 1)  # where commands run: -1 is the CPU
    assert len(SentenceIndex.load(tmp_path / "index", embedder).search("cat", layer=1)[0]) > 2
    (tmp_path / "other.txt").write_text("The cat sat .\n")
    for words, what in (
        ([tmp_path / "other.txt", *cache], "corpus"),
        ([text, *cache, "--tokenizer", "basic"], "tokenizer"),
        ([text, *cache, "--pool", "max"], "pool"),
        ([text, *cache, "--remove_components", 1], "remove_components"),
        ([text, *cache[4:], "--query", "A cat", "--index", 0], "pool, tokenizer, remove_components"),
    ):
        refused(elmo_fast("neighbours", *words), f"index is of a different {what}; name another file, or remove this")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_is_searched_as_embed_reads_it(toy, tmp_path, kind):
    """The column's values alone, each with its row; sentences and tokens are those of the column as a text file."""
    texts = ["The cat sat on the hill.", "", 'A "dog",\nand back.', "the cat sat ."]
    write_table(tmp_path / f"in.{kind}", {"id": ["The cat sat."] * 4, "message": texts})
    (tmp_path / "in.txt").write_text("".join(f"{' '.join(text.split())}\n" for text in texts))
    table = [tmp_path / f"in.{kind}", "--column", "message"]
    basic = ["--tokenizer", "basic"]
    for words in (["The cat sat.", *basic], ["cat sat", "--index", 0, *basic, "--cache", tmp_path / "cache"]):
        asked = ["--query", *words, "-q", *pair(toy)]
        of_text, of_table = (ran("neighbours", *text, *asked).stdout for text in ([tmp_path / "in.txt"], table))
        assert of_table == of_text.replace("  line ", "  row ")
        assert "  row 4: " in of_table
        assert "  row 2: " not in of_table
    refused(elmo_fast("neighbours", table[0], *asked[:2], *pair(toy)), "no column 'text'; it has: id, message; choose")
    other = elmo_fast("neighbours", table[0], "--column", "id", *asked)
    refused(other, "is of a different corpus")


def test_cached_vocabulary_holds_each_words_vector(toy, tmp_path):
    """Row i is layer 0 (its first half) of the i-th word, whatever sentence it stands in."""
    words = ["<S>", "</S>", "<UNK>", "cat", "•", "x" * 60, "dog"]
    Vocabulary(words).write(tmp_path / "v")
    out = tmp_path / "out.hdf5"
    ran("cache-vocab", *pair(toy), "--vocab_file", tmp_path / "v", "--output", out, "--batch-size", 3, "-q")
    vectors = ElmoEmbedder(*toy).embed_sentence(words)[0, :, :8]
    with h5py.File(out) as file:
        assert file["embedding"].shape == (7, 8)
        np.testing.assert_allclose(file["embedding"][()], vectors, atol=1e-6)


def test_cache_vocab_takes_words_without_markers_but_not_none(toy, tmp_path):
    """A row per line, a blank one too; a character model needs no markers."""
    (tmp_path / "v").write_text("cat\n\n<S>\ncat\n")
    words = ["--vocab_file", tmp_path / "v", "--output", tmp_path / "out"]
    ran("cache-vocab", *pair(toy), *words, "-q")
    with h5py.File(tmp_path / "out") as file:
        assert file["embedding"].shape == (4, 8)
        assert (file["embedding"][0] == file["embedding"][3]).all()
    (tmp_path / "out").unlink()
    for text in ("", "\n\n", "<S>\n</S>\n<UNK>\n"):
        (tmp_path / "v").write_text(text)
        refused(elmo_fast("cache-vocab", *pair(toy), *words), "contains no words; give one word per line")
    assert os.listdir(tmp_path) == ["v"]
