"""`elmo-fast embed`: the layouts it writes and that their numbers are the embedder's."""

import gzip
import io
import json
import os
import pathlib
import sys
import types

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from elmo_fast import ElmoEmbedder
from elmo_fast._runtime.progress import duration
from tests.cli.conftest import SENTENCES, pair, ran, refused
from tests.support.command_line import elmo_fast

TOKENS = [sentence.split() for sentence in SENTENCES]
KINDS = {"--all": lambda v: v, "--top": lambda v: v[-1], "--average": lambda v: np.average(v, axis=0)}


def embed(text, out, toy, *words):
    ran("embed", text, out, *pair(toy), "-q", *words)
    return out


def expected(toy, batch_size=64, **settings):
    embedder = ElmoEmbedder(*toy, **settings)
    return [v for i in range(0, len(TOKENS), batch_size) for v in embedder.embed_batch(TOKENS[i : i + batch_size])]


@pytest.mark.parametrize("kind", KINDS)
def test_hdf5_as_allennlp_writes_it(text, toy, tmp_path, kind):
    """Float32 datasets "0", "1", ... and the JSON text that maps sentences to them, the last of equal ones winning."""
    with h5py.File(embed(text, tmp_path / "out.hdf5", toy, kind, "--stateful", "--batch-size", "2")) as file:
        assert set(file) == {*map(str, range(len(TOKENS))), "sentence_to_index"}
        for i, vectors in enumerate(expected(toy, batch_size=2)):
            assert file[str(i)].dtype == np.float32
            np.testing.assert_array_equal(file[str(i)][()], KINDS[kind](vectors))
        assert file["sentence_to_index"].shape == (1,)
        assert json.loads(file["sentence_to_index"][0]) == {line: str(i) for i, line in enumerate(SENTENCES)}
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.hdf5"]


def flat(path, name):
    if name == "hdf5-flat":
        with h5py.File(path) as file:
            assert file.attrs["layers"] in ("all", "average")
            return file["embeddings"][()], file["offsets"][()]
    if name == "safetensors":
        loaded = load_file(path)
        return loaded["embeddings"], loaded["offsets"]
    with np.load(path) as archive:
        return archive["embeddings"], archive["offsets"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hdf5-flat", ["--all", "--stateful"]),
        ("safetensors", ["--average", "--stateful", "--dtype", "f16"]),
        ("npz", ["--all"]),
    ],
)
def test_flat_formats_hold_all_tokens_and_offsets(text, toy, tmp_path, name, words):
    """embeddings [tokens, layers, 2D]; without state the batches are sorted by length, yet the order is the text's."""
    out = embed(text, tmp_path / f"out.{name.partition('-')[0]}", toy, "--format", name, "--batch-size", "2", *words)
    embeddings, offsets = flat(out, name)
    dtype = np.float16 if "f16" in words else np.float32
    assert embeddings.dtype == dtype
    assert offsets.tolist() == np.cumsum([0, *map(len, TOKENS)]).tolist()
    for i, vectors in enumerate(expected(toy, batch_size=2, stateful="--stateful" in words)):
        reference = KINDS[words[0]](vectors).astype(dtype)
        reference = reference.swapaxes(0, 1) if words[0] == "--all" else reference[:, None]
        actual = embeddings[offsets[i] : offsets[i + 1]]
        if "--stateful" not in words:  # other batches, other widths of padding
            np.testing.assert_allclose(actual, reference, atol=1e-6)
        else:
            np.testing.assert_array_equal(actual, reference)


@pytest.mark.filterwarnings("always:.* blank line")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hdf5", ["--all", "--stateful"]),
        ("hdf5", ["--average"]),
        ("hdf5-flat", ["--all"]),
        ("safetensors", ["--average", "--stateful"]),
        ("npz", ["--all"]),
    ],
)
def test_blank_lines_are_skipped_and_keep_their_numbers(toy, tmp_path, name, words):
    """The other sentences have the vectors that they have without blank lines."""
    lines = ["", "The cat sat .", "", "  ", "A dog", "The cat sat .", ""]
    there = [index for index, line in enumerate(lines) if line.strip()]
    files, messages = [], ""
    for kind, text in (("blank", lines), ("plain", [lines[index] for index in there])):
        (tmp_path / kind).write_text("".join(f"{line}\n" for line in text))
        files.append(tmp_path / f"{kind}-out")
        messages += ran("embed", tmp_path / kind, files[-1], *pair(toy), "-q", *words, "--format", name).stderr
    assert messages.count("blank: 4 blank lines (line 1, 3, 4, 7)") == 1
    if name != "hdf5":
        (vectors, offsets), (plain, _) = (flat(file, name) for file in files)
        np.testing.assert_allclose(vectors, plain, atol=0 if "--stateful" in words else 1e-6)
        assert offsets.tolist() == np.cumsum([0, *(len(line.split()) for line in lines)]).tolist()
        return
    with h5py.File(files[0]) as blank, h5py.File(files[1]) as plain:
        assert set(blank) == {*map(str, range(len(lines))), "sentence_to_index"}
        for index, line in enumerate(lines):
            assert blank[str(index)].shape == (*([3] if "--all" in words else []), len(line.split()), 16)
        for number, index in enumerate(there):
            np.testing.assert_allclose(
                blank[str(index)][()], plain[str(number)][()], atol=0 if "--stateful" in words else 1e-6
            )
        assert json.loads(blank["sentence_to_index"][0]) == {"The cat sat .": "5", "A dog": "4"}


@pytest.mark.filterwarnings("always:.* blank line")
@pytest.mark.parametrize(
    ("option", "names"),
    [("--use-sentence-keys", {"The : cat", "B"}), ("--forget-sentences", {"0", "1", "2", "3"})],
)
def test_datasets_are_named_by_sentences_or_numbers_alone(toy, tmp_path, option, names):
    (tmp_path / "in.txt").write_text("\nB\n\n The : cat  \n")
    with h5py.File(embed(tmp_path / "in.txt", tmp_path / "out", toy, "--top", option)) as file:
        assert set(file) == names
        assert {len(file[name]) for name in file} - {0} == {1, 3}


@pytest.mark.parametrize(
    ("output", "words", "written"),
    [
        ("a.hdf5", "", "hdf5"),
        ("a.h5", "--format hdf5-flat", "hdf5-flat"),
        ("a.NPZ", "--format npz", "npz"),
        ("a.safetensors", "", "safetensors"),
        ("a", "", "hdf5"),
    ],
)
def test_the_name_of_the_output_says_its_format(text, toy, tmp_path, output, words, written):
    done = elmo_fast("embed", text, tmp_path / output, "--average", *pair(toy), *words.split())
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    if written == "hdf5":
        with h5py.File(tmp_path / output) as file:
            assert "sentence_to_index" in file
    else:
        assert len(flat(tmp_path / output, written)[1]) == len(TOKENS) + 1


def test_metadata_says_what_was_run(text, toy, tmp_path):
    from safetensors import safe_open

    embed(text, tmp_path / "a", toy, "--top", "--format", "safetensors", "--precision", "bfloat16")
    with safe_open(tmp_path / "a", "np") as file:
        metadata = file.metadata()
    assert metadata["model"] == toy[1]
    assert (metadata["layers"], metadata["stateful"]) == ("top", "false")
    # On a GPU torch's own settings of precision follow, which the tests change.
    assert metadata["precision"].split(", ")[0] == "bfloat16"
    embed(text, tmp_path / "b", toy, "--top", "--format", "npz")
    with np.load(tmp_path / "b") as archive:
        assert json.loads(str(archive["metadata"]))["layers"] == "top"


def test_gzip_and_standard_input_give_the_same(text, toy, tmp_path, monkeypatch):
    plain = pathlib.Path(text).read_bytes()
    (tmp_path / "in.gz").write_bytes(gzip.compress(plain))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(plain)))
    sources = (text, tmp_path / "in.gz", "-")
    outs = [embed(source, tmp_path / f"{i}", toy, "--top").read_bytes() for i, source in enumerate(sources)]
    assert outs[0] == outs[1] == outs[2]


def test_fasta_records_are_named_and_parquet_rows_are_lines(text, toy, tmp_path):
    """A dataset per name of FASTA, its residues being tokens; a column of Parquet gives what the text gives.

    CoNLL-U with the same tokens and names gives what FASTA gives.
    """
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    (tmp_path / "p.fasta").write_text(">P1 first\nMK\nV\n>P2\nKA\n")
    (tmp_path / "p.txt").write_text("M K V\nK A\n")
    parquet.write_table(pa.table({"words": TOKENS}), tmp_path / "in.parquet")
    fasta = embed(tmp_path / "p.fasta", tmp_path / "a", toy, "--all", "--format-in", "fasta")
    spaced = embed(tmp_path / "p.txt", tmp_path / "b", toy, "--all")
    table = embed(tmp_path / "in.parquet", tmp_path / "c", toy, "--all", "--column", "words")
    lines = embed(text, tmp_path / "d", toy, "--all")
    sentences = [f"{i}\t{word}{8 * f'{chr(9)}_'}\n" for i, word in ((1, "M"), (2, "K"), (3, "V"), (1, "K"), (2, "A"))]
    (tmp_path / "p.conllu").write_text(
        "".join(["# sent_id = P1\n", *sentences[:3], "\n# sent_id = P2\n", *sentences[3:]])
    )
    assert embed(tmp_path / "p.conllu", tmp_path / "f", toy, "--all").read_bytes() == fasta.read_bytes()
    with h5py.File(fasta) as named, h5py.File(spaced) as numbered:
        assert list(named) == ["P1", "P2"]
        for name, number in (("P1", "0"), ("P2", "1")):
            np.testing.assert_array_equal(named[name][()], numbered[number][()])
    assert table.read_bytes() == lines.read_bytes()
    embed(tmp_path / "p.fasta", tmp_path / "e", toy, "--all", "--format-in", "fasta", "--format", "npz")
    assert flat(tmp_path / "e", "npz")[1].tolist() == [0, 3, 5]


@pytest.mark.filterwarnings("always:.*blank line")
@pytest.mark.parametrize(
    ("ending", "kind"), [("hdf5", "--all"), ("npz", "--average"), ("safetensors", "--all"), ("parquet", "--average")]
)
def test_one_vector_per_line(toy, tmp_path, ending, kind):
    """[lines, L, 2D] or [lines, 2D], in the lines' order; zeros of a blank line."""
    text = tmp_path / "in.txt"
    text.write_text("The cat\n\n" + "a b c\n" * 3 + "sat\n")
    out = embed(text, tmp_path / f"out.{ending}", toy, kind, "--pool", "mean")
    if ending == "hdf5":
        with h5py.File(out) as file:
            actual, names = file["embeddings"][()], json.loads(file["sentence_to_index"][0])
        assert names == {"The cat": "0", "a b c": "4", "sat": "5"}
    elif ending == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(out)
        actual = np.array(table["embedding"].to_pylist(), np.float32)
        assert table["sentence"].to_pylist() == text.read_text().splitlines()
    else:
        actual = (np.load if ending == "npz" else load_file)(out)["embeddings"]
    embedder = ElmoEmbedder(*toy, stateful=False)
    lines = [line.split() for line in text.read_text().splitlines()]
    reference = [
        KINDS[kind](embedder.embed_sentence(line)).mean(-2) if line else np.zeros_like(actual[0]) for line in lines
    ]
    np.testing.assert_allclose(actual, np.stack(reference), atol=2e-6)


def test_a_parquet_file_has_a_row_for_each_line(text, toy, tmp_path):
    tables = pytest.importorskip("pyarrow.parquet")
    table = tables.read_table(
        embed(text, tmp_path / "out.parquet", toy, "--all", "--stateful", "--dtype", "f16", "--batch-size", "2")
    )
    assert table["sentence"].to_pylist() == SENTENCES
    assert table.schema.metadata[b"layers"] == b"all"
    for row, vectors in zip(table["embeddings"].to_pylist(), expected(toy, batch_size=2), strict=True):
        np.testing.assert_array_equal(np.array(row, np.float16), vectors.swapaxes(0, 1).astype(np.float16))


@pytest.mark.parametrize(("kind", "group_bytes"), [("csv", 1), ("jsonl", 1 << 26), ("parquet", 1)])
def test_other_columns_of_a_table_are_carried_into_parquet(toy, tmp_path, monkeypatch, kind, group_bytes):
    """Row by row, whatever the groups of rows; of other kinds of files, nothing. A name that is taken is an error."""
    tables, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    monkeypatch.setattr("elmo_fast.embed.token_files.GROUP_BYTES", group_bytes)
    monkeypatch.setattr("elmo_fast.text.sources.ROWS", 2)
    numbers = [str(number) for number in range(len(SENTENCES))] if kind == "csv" else list(range(len(SENTENCES)))
    path = tmp_path / f"in.{kind}"

    def write(name):
        columns = {name: numbers, "words": SENTENCES, "empty": [""] * len(SENTENCES)}
        if kind == "parquet":
            tables.write_table(pa.table(columns), path)
        elif kind == "csv":
            lines = zip(*columns.values(), strict=True)
            path.write_text("\n".join([",".join(columns), *map(",".join, lines)]), encoding="utf-8")
        else:
            lines = (json.dumps(dict(zip(columns, each, strict=True))) for each in zip(*columns.values(), strict=True))
            path.write_text("\n".join(lines))

    write("n")
    words = ["--top", "--column", "words", "--pool", "mean", "--batch_size", "2"]
    table = tables.read_table(embed(path, tmp_path / "out.parquet", toy, *words))
    assert table.column_names == ["n", "empty", "sentence", "embedding"]
    assert table["n"].to_pylist() == numbers
    assert table["sentence"].to_pylist() == SENTENCES
    for row, vectors in zip(table["embedding"].to_pylist(), expected(toy, stateful=False), strict=True):
        np.testing.assert_allclose(row, vectors[-1].mean(0), atol=1e-6)
    assert set(np.load(embed(path, tmp_path / "out.npz", toy, *words))) == {"embeddings", "metadata"}
    write("sentence")
    done = elmo_fast("embed", path, tmp_path / "new.parquet", *pair(toy), "-q", "--column", "words")
    refused(done, "the input and the output both have a column 'sentence'; rename the input's")
    assert not (tmp_path / "new.parquet").exists()


@pytest.mark.filterwarnings("always:.* blank line")
@pytest.mark.parametrize("words", [["--all"], ["--top", "--dtype", "f16"], ["--all", "--pool", "mean"]])
def test_json_lines_from_stream_to_stream_are_those_of_a_file(toy, tmp_path, monkeypatch, words):
    """The rows of Parquet, with every bit of the numbers, blank lines too; nothing else is on the standard output."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "in.txt").write_text(text := "The cat sat .\n\nA Résumé\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(text.encode())))
    done = ran("embed", "-", "-", *pair(toy), *words, "--file_friendly_logging")
    ran("embed", tmp_path / "in.txt", tmp_path / "out.jsonl", *pair(toy), *words)
    ran("embed", tmp_path / "in.txt", tmp_path / "out.parquet", *pair(toy), *words)
    assert done.stdout == (tmp_path / "out.jsonl").read_text()
    options = ["--output", "-"] if "--pool" in words else ["--output=-"]
    assert ran("embed", *options, tmp_path / "in.txt", *pair(toy), *words).stdout == done.stdout
    assert "3 sentences, 6 tokens" in done.stderr
    key = "embedding" if "--pool" in words else "embeddings"
    table, dtype = parquet.read_table(tmp_path / "out.parquet"), np.float16 if "f16" in words else np.float32
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row) for row in rows] == [["sentence", key]] * 3
    assert [row["sentence"] for row in rows] == text.split("\n")[:3]
    for row, expected in zip(rows, table[key].to_pylist(), strict=True):
        np.testing.assert_array_equal(np.array(row[key], dtype), np.array(expected, dtype))


@pytest.mark.filterwarnings("always:.* is read as text")
def test_messages_about_arguments_name_the_options(toy, tmp_path, monkeypatch):
    """Errors and warnings: --column NAME and --format_in, not column=NAME as in Python; what is no option stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("label=a,words\n1,a\n")
    (tmp_path / "in.faa").write_text(">P1\nMK\n")
    done = elmo_fast("embed", *pair(toy), "in.csv", "out.npz")
    refused(done, "it has: label=a, words; choose one with --column NAME")
    assert "--format_in fasta; --format_in text omits" in ran("embed", *pair(toy), "in.faa", "out.npz").stderr


@pytest.mark.parametrize(
    ("there", "words", "said"),
    [
        (True, [], True),
        (False, [], False),
        (True, ["--device", "cpu"], False),
        (True, ["--cuda_device", "-1"], False),
        (True, ["--precision", "int8"], False),
    ],
)
def test_a_gpu_is_taken_if_there_is_one_and_that_is_said(monkeypatch, tmp_path, there, words, said):
    """Before an error that comes next."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2 * there)
    done = elmo_fast("embed", "in.txt", tmp_path / "out", "--use_sentence_keys", "--format", "npz", *words)
    refused(done, "--use_sentence_keys needs --format hdf5")
    assert ("gpu    --device cuda, as torch sees a GPU; --device cpu" in done.stderr) == said


def test_a_time_below_ten_seconds_has_tenths():
    """So that it agrees with the speed behind it; rounded up."""
    for seconds, words in ((-1, "0s"), (0.09, "0.1s"), (4, "4s"), (9.95, "10s"), (10.2, "11s"), (3600, "1h00m")):
        assert duration(seconds) == words
