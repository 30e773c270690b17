"""neighbours, convert, cache-vocab, vocab and info."""

import gzip
import os

import h5py
import numpy as np
import pytest

from elmo_fast.cli import info
from elmo_fast.cli.main import main
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.ops import PRECISIONS, op_names
from elmo_fast.text import Vocabulary
from tests.cli.conftest import SENTENCES, pair
from tests.manylangs import write_model
from tests.weights import make_weights


@pytest.fixture
def model(toy):
    return [*pair(toy)]


@pytest.mark.parametrize("layer", ["0", "top", "average"])
def test_neighbours_are_those_of_a_plain_search(toy, model, text, capsys, layer):
    """Cosines of all tokens with the query's, computed one pair at a time."""
    query = "A cat sat down ."
    asked = ["--corpus", text, "--query", query, "--index", "1", "--topn", "5", "--layer", layer, "-q"]
    assert main(["neighbours", *model, *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
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
    found = [float(line.split()[1]) for line in lines[1:]]
    assert found == sorted(found, reverse=True)
    np.testing.assert_allclose(found, [-cosine for cosine, _, _ in sorted(scored)[:5]], atol=2e-3)
    best = min(scored)[1]
    assert f"line {best}: " in lines[1]
    assert "[" in lines[1]


def test_neighbours_of_every_layer(model, text, capsys):
    asked = ["--corpus", text, "--query", "The cat", "--index", "1", "--topn", "2", "--layer", "all", "-q"]
    assert main(["neighbors", *model, *asked]) == 0
    out = capsys.readouterr().out
    assert [f"layer {i}" in out for i in range(4)] == [True, True, True, False]
    assert "1.0000  line 1: The [cat] sat ." in out.split("layer 1")[0]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--query", "a b", "--index", "2"], "0:a 1:b"),
        (["--query", "a b", "--index", "-1"], "0:a 1:b"),
        (["--query", "", "--index", "0"], "none"),
        (["--query", "a", "--index", "0", "--topn", "0"], "topn must be"),
        (["--query", "a", "--index", "0", "--layer", "7"], "a number from 0 to 2"),
    ],
)
def test_neighbours_refuses_what_is_not_there(model, text, capsys, words, named):
    assert main(["neighbours", *model, "--corpus", text, *words]) == 2
    assert named in capsys.readouterr().err


def test_convert_takes_a_model_that_differs_away_again(model, tmp_path, capsys, monkeypatch):
    from elmo_fast.cli import models

    monkeypatch.setattr(models, "largest_difference", lambda *words: float("nan"))
    assert main(["convert", *model, "--to", "hdf5", "--outdir", str(tmp_path / "out")]) == 2
    assert "the written model differs" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def test_convert_does_not_overwrite(model, toy, capsys):
    assert main(["convert", *model, "--to", "hdf5", "--outdir", os.path.dirname(toy[1])]) == 2
    assert "exists already" in capsys.readouterr().err


def test_cached_vocabulary_holds_each_words_vector(toy, model, tmp_path):
    """Row i is layer 0 (its first half) of the i-th word, whatever sentence it stands in."""
    words = ["<S>", "</S>", "<UNK>", "cat", "•", "x" * 60, "dog"]
    Vocabulary(words).write(tmp_path / "v")
    out = tmp_path / "out.hdf5"
    assert (
        main(
            [
                "cache-vocab",
                *model,
                "--vocab_file",
                str(tmp_path / "v"),
                "--outfile",
                str(out),
                "--batch-size",
                "3",
                "-q",
            ]
        )
        == 0
    )
    vectors = ElmoEmbedder(*toy).embed_sentence(words)[0, :, :8]
    with h5py.File(out) as file:
        assert file["embedding"].shape == (7, 8)
        np.testing.assert_allclose(file["embedding"][()], vectors, atol=1e-6)


def test_cache_vocab_refuses_a_vocabulary_without_markers(model, tmp_path, capsys):
    (tmp_path / "v").write_text("cat\n<S>\n<UNK>\n")
    assert main(["cache-vocab", *model, "--vocab_file", str(tmp_path / "v"), "--outfile", str(tmp_path / "out")]) == 2
    assert "lacks </S>" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["v"]


def test_vocab_counts_over_files_and_gzip(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("b a b\n\nc\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a b d\n"))
    out = tmp_path / "vocabulary"
    assert main(["vocab", "--train-prefix", f"{tmp_path}/a.*", "--vocab-file", str(out), "--min-count", "2"]) == 0
    assert out.read_text() == "<S>\n</S>\n<UNK>\nb\na\n"
    assert "2 of 4 distinct words, 71.43% of 7 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "named"), [("absent*", "no file matches"), ("empty.txt", "contains no words")])
def test_vocab_of_nothing_is_refused(tmp_path, capsys, name, named):
    (tmp_path / "empty.txt").write_text("\n\n")
    assert main(["vocab", "--train-prefix", str(tmp_path / name), "--vocab-file", str(tmp_path / "v")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "v").exists()


def test_info_tells_every_op_and_precision(capsys, monkeypatch):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for name in [*op_names(), *PRECISIONS, "torch ", "CPU: "]:
        assert name in out


def test_info_tells_an_arm_cpu_what_it_has(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd49\n")
    monkeypatch.setattr(info, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert info.processor()[1] == "     has asimd bf16 | lacks i8mm"


def test_info_tells_what_a_model_is(model, tmp_path, capsys):
    """Of any format, read and checked as a whole; a damaged one is refused."""
    folder = write_model(tmp_path / "lexicons", encoder="lstm")
    for words, wanted in (
        (model, ["characters: vectors of", "clips: cell 3"]),
        (
            ["--model", str(folder)],
            ["lexicons: 13 characters and 8 words", "reads both directions", "clips: cell none"],
        ),
    ):
        assert main(["info", *words]) == 0
        out = capsys.readouterr().out
        assert [each for each in wanted if each not in out] == []
    (folder / "encoder.pkl").write_bytes(b"")
    assert main(["info", "--model", str(folder)]) == 2
    assert "encoder.pkl: not a torch.save file, or damaged" in capsys.readouterr().err


def test_info_says_that_its_speeds_are_another_cpus(capsys, monkeypatch):
    """Nothing is said of the speed of a precision except under the name of the CPU that was measured."""
    from elmo_fast.ops import _cpu_products, _native

    if _native.C is None:
        pytest.skip(str(_native.WHY_NOT))
    monkeypatch.setattr(_native.C, "isa", lambda: "avx512_bf16")
    assert main(["info"]) == 0
    before, after = capsys.readouterr().out.split(
        f"speeds of this instruction set on {_cpu_products.MEASURED_ON} (this CPU"
    )
    assert "was not measured):\n    bfloat16: 1.8 times as fast as float32 in batches of 32" in after
    assert "as fast as" not in before


def test_info_tells_whether_there_are_cuda_kernels(capsys, monkeypatch):
    """That the extension holds them, or in one sentence why not."""
    from elmo_fast.ops import _native

    if _native.C is None:
        pytest.skip(str(_native.WHY_NOT))
    for built, wanted in ((True, "CUDA C++ kernels: in it"), (False, "CUDA C++ kernels: none: nvcc was away")):
        monkeypatch.setattr(_native.C, "has_cuda", built)
        monkeypatch.setattr(_native.C, "why_no_cuda", None if built else "nvcc was away")
        assert main(["info"]) == 0
        assert wanted in capsys.readouterr().out


def test_info_says_why_the_extension_is_missing(capsys, monkeypatch):
    """Once, above the ops, each of which says that there is none."""
    from elmo_fast.ops import _native

    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "no compiler was found")
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "C++ extension: no: no compiler was found" in out
    assert out.count("no compiler was found") == 1
    assert out.count("reference (not native: no C++ extension)\n") >= 14


def test_a_model_of_word_ids_is_converted(tmp_path, capsys):
    options, weights = make_weights(tmp_path / "words", words=11)
    words = ["convert", "--options-file", str(options), "--weight-file", str(weights), "--to", "safetensors"]
    assert main([*words, "--outdir", str(tmp_path / "own")]) == 0
    assert "differ by at most 0" in capsys.readouterr().out
