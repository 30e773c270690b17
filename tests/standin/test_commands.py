"""Every command that takes a device gives the CPU's numbers on a GPU, real or stood in for."""

import json
import random
import re

import h5py
import numpy as np
import pytest
import torch

from elmo_fast.ops import cases
from tests.support.command_line import elmo_fast
from tests.support.weights import make_weights
from tests.tasks.toy import write_columns

if not torch.cuda.is_available():
    pytest.skip("needs a GPU, or `python -m tests.standin python -m pytest ...`", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("default")  # a GPU is unchecked until `elmo-fast check` has run there
WORDS = ["the", "of", "and", "to", "in", "a", "was", "that", "he", "for", "it", "with", "his", "on", "had", "not"]
CPU, GPU = "cpu", "cuda:1"  # the default, cuda, is the others'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a small biLM, tagged sentences, and a text: twelve different sentences of three lengths."""
    path, chance = tmp_path_factory.mktemp("gpu"), random.Random(0)
    lines = [" ".join(chance.choices(WORDS, k=length)) for length in (3, 6, 11) for _ in range(12)]
    (path / "text.txt").write_text("\n".join(lines) + "\n")
    for seed, (name, count) in enumerate({"train": 40, "dev": 12, "test": 12}.items()):
        write_columns(path / f"{name}.conll", count, seed)
    make_weights(path / "elmo", cell=12, proj=8, filters=((1, 4), (2, 4)), char_dim=4, n_highway=1, scale=0.5)
    return path


@pytest.fixture
def replays(monkeypatch):
    """Return the list to which each replay of a graph is added."""
    replayed, replay = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replayed.append(graph), replay(graph))[1])
    return replayed


def ran(*words):
    """Return what a command prints, which must succeed."""
    done = elmo_fast(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_each_device(folder, name, *words):
    """Run a command that writes a file, on each device; return the files, the CPU's first."""
    outputs = [folder / f"{device.replace(':', '')}-{name}" for device in (CPU, GPU)]
    for device, output in zip((CPU, GPU), outputs, strict=True):
        ran(*words, "--device", device, "--output", output)
    return outputs


def arrays(path):
    with h5py.File(path) as file:
        return {key: file[key][...] for key in file if key != "sentence_to_index"}


def check_alike(actual, expected, tolerance=2e-5):
    """Check that the numbers of two results are equal but for rounding, and everything else exactly."""
    assert type(actual) is type(expected)
    if isinstance(expected, dict | list | tuple):
        assert len(actual) == len(expected)
        keys = expected if isinstance(expected, dict) else range(len(expected))
        for key in keys:
            check_alike(actual[key], expected[key], tolerance)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    else:
        assert actual == expected


def numbers_in(text):
    """Return the words of a text, its numbers as numbers."""
    words = text.replace(",", " ").split()
    return [float(word) if word.replace(".", "", 1).replace("-", "", 1).isdigit() else word for word in words]


def test_info_names_each_gpu():
    printed = ran("info")
    assert all(f"GPU {i}: {torch.cuda.get_device_name(i)}" in printed for i in range(torch.cuda.device_count()))


@pytest.mark.slow
def test_check_finds_all_kernels_right_and_remembers_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert " right, 0 wrong on cuda" in ran("check")
    assert len(list((tmp_path / "elmo_fast" / "gpu").iterdir())) == 1


@pytest.mark.filterwarnings("always:.*unchecked")
def test_a_gpu_is_unchecked_until_the_check_has_passed(folder, tmp_path, monkeypatch):
    """Graphs, dropout, a captured step, a second GPU and one op, each in a process of its own; commands warn before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cases, "CASES", {"scalar_mix": cases.CASES["scalar_mix"]})
    text = folder / "text.txt"
    embed = ["embed", text, tmp_path / "out.hdf5", "--model", folder / "elmo", "--device", "cuda"]
    train = ["pretrain", "--train_prefix", text, "--save_dir", tmp_path / "run", "--config", "tiny", "--device", "cuda"]
    train += ["--max_steps", 1, "--min_count", 1, "--batch_size", 2, "--n_negative_samples_batch", 8, "--dim", 16]
    train += ["--unroll_steps", 3, "--filters", "[[1,8]]", "--projection_dim", 8, "--char_embedding_dim", 4]
    said = [elmo_fast(*embed).stderr, elmo_fast(*train).stderr]
    assert re.search("^[45] right, 0 wrong on cuda$", ran("check"), re.MULTILINE)
    said.append(elmo_fast(*embed).stderr)
    message = f"kernels are unchecked on this {torch.cuda.get_device_name()}"
    assert [message in each for each in said] == [True, True, False], said


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_embed_gives_each_batch_its_own_vectors(folder, replays, monkeypatch, graphs):
    """Six batches of each shape, every one different; the second of a shape is captured and replayed."""
    if not graphs:
        monkeypatch.setenv("ELMO_FAST_CUDA_GRAPHS", "0")
    words = ["embed", "--model", folder / "elmo", "--batch_size", 2, folder / "text.txt"]
    expected, actual = on_each_device(folder, "text.hdf5", *words)
    check_alike(arrays(actual), arrays(expected))
    assert (len(replays) > 10) == graphs


@pytest.mark.parametrize("place", [[], ["--index", "1"]], ids=["sentences", "tokens"])
def test_neighbours(folder, place):
    words = ["neighbours", "--model", folder / "elmo", folder / "text.txt", "--query", "it was his"]
    words += ["--batch_size", "4", *place]
    expected, actual = (numbers_in(ran(*words, "--device", device)) for device in (CPU, "cuda"))
    check_alike(actual, expected, 2e-4)


@pytest.mark.parametrize("source", ["--corpus", "--vocab_file"])
def test_static_export(folder, source):
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in ("<S>", "</S>", "<UNK>", *WORDS)))
    file = folder / ("text.txt" if source == "--corpus" else "words.txt")
    files = on_each_device(folder, "words.vec", "static", "export", "--model", folder / "elmo", source, file)
    expected, actual = (numbers_in(file.read_text()) for file in files)
    check_alike(actual, expected, 1e-4)


def test_static_glove_learns_the_same_vectors(folder):
    words = ["static", "train", "--algo", "glove", "--train_prefix", folder / "text.txt"]
    small = ["--dimension", 6, "--min_count", 1, "--epochs", 2]
    files = on_each_device(folder, "glove.vec", *words, *small)
    expected, actual = (numbers_in(file.read_text()) for file in files)
    check_alike(actual, expected, 1e-4)


def test_plots(folder):
    pytest.importorskip("matplotlib")
    files = on_each_device(
        folder, "words.png", "plot", "words", "--model", folder / "elmo", "--words", *WORDS, "--method", "pca"
    )
    assert all(file.stat().st_size > 10_000 for file in files)
    words = ["plot", "senses", "--model", folder / "elmo", "--word", "was", "--text", folder / "text.txt"]
    ran(*words, "--device", "cuda", "--output", folder / "senses.html")


def test_convert(folder):
    """It compares the vectors of both formats itself."""
    ran("convert", "--model", folder / "elmo", "--to", "hdf5", "--out_dir", folder / "hdf5")


@pytest.mark.parametrize("fine_tune", [False, True], ids=["frozen", "fine-tuned"])
def test_task_trains_scores_and_labels(folder, fine_tune):
    words = [f"--{name}_path={folder / name}.conll" for name in ("train", "dev", "test")]
    words += ["--model", folder / "elmo", "--elmo", "input", "--fine_tune", str(fine_tune).lower(), "--word_dim", "4"]
    words += ["--hidden", "6", "--epochs", "2", "--dropout", "0", "--elmo_dropout", "0", "--precision", "float32"]
    (folder / "plain.txt").write_text("the cat sees Ann\nBob\n")
    runs = []
    for device in (CPU, GPU if fine_tune else "cuda"):
        run, on = folder / f"task-{device}-{fine_tune}", ("--device", device)
        ran("task", "train", *words, "--save_dir", run, *on)
        ran("task", "eval", run, folder / "test.conll", "--output", run / "eval.json", *on)
        labels = ran("task", "predict", run, folder / "plain.txt", "-", "--format", "text", *on)
        results = json.loads((run / "results.json").read_text())
        assert json.loads((run / "eval.json").read_text()) == results["test"]
        runs.append((results["dev"], results["test"], labels))
    check_alike(runs[1], runs[0], 1e-3)


def test_report(folder):
    words = [f"--{name}_path={folder / name}.conll" for name in ("train", "dev", "test")]
    small = ["--seeds", "1", "--hidden", "4", "--epochs", "1", "--experiments", "help", "--model", folder / "elmo"]
    ran("report", *words, *small, "--save_dir", folder / "report")
    assert "ELMo" in (folder / "report" / "report.md").read_text()
