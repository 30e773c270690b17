"""Users' mistakes on the command line: one clear sentence, status 2, no traceback, nothing spoilt."""

import errno
import io
import os
import shutil
import signal

import h5py
import numpy as np
import pytest

from elmo_fast.cli.main import main
from tests.cli.conftest import pair, refused
from tests.corpus.test_processes import until
from tests.support.command_line import elmo_fast, forked

# Command -> words that the library refuses, and the error: one line on stderr that names the option, and status 2.
REFUSED = {
    "vocab": ("--train_prefix absent-* --vocab_file v", "--train_prefix absent-*: no file matches"),
    "prepare": ("--train_prefix in.txt --out_dir texts", "texts contains other files than a prepared corpus"),
    "pretrain": ("--train_prefix in.txt --save_dir s --init_from absent", "absent: wanted a folder or archive"),
    "eval": ("--model M --test_prefix in.txt", "this checkpoint has no softmax weights"),
    "plot curves": ("texts", "texts is not the folder of a run"),
    "plot layers": ("in.txt", "source in.txt: not JSON text"),
    "plot words": ("--model M --words a", "tsne needs 4 vectors or more, and pca 1; got 1"),
    "plot senses": ("--model M --text none.txt --word bank", "--text: No such file or directory: 'none.txt'"),
    "plot projector": ("--vectors absent --out_dir o", "absent"),
    "report": ("--model M", "--train_path is needed: labelled sentences to train on"),
    "embed": ("in.txt out.txt --model M", "out.txt: the name must end in .hdf5, .h5, .npz, .safetensors, .parquet"),
    "merge": ("texts out", "parts texts: no folder of parts"),
    "neighbours": ("in.txt --model M --query a --index 7", "0:a"),
    "task train": ("--train_path absent", "--train_path: there is no file 'absent'"),
    "task eval": ("texts in.txt", "texts holds no trained task"),
    "task predict": ("texts in.txt out", "give --format text or --format columns"),
    "convert": ("--model absent/one --out_dir o", "--model absent/one: "),
    "upload": ("M me --licence mit", "wanted a name on the hub like user/name"),
    "download": ("me", "wanted a name"),
    "static train": ("--train_prefix absent --algo glove --output v.bin", "absent"),
    "static eval": ("absent", "vectors: No such file or directory: 'absent'"),
    "static neighbours": ("v.txt --words zebra -q", "'zebra' has no vector"),
    "static convert": ("v.txt --output c.dat", "'c.dat': the name must end in .bin"),
    "static export": ("--model M --corpus in.txt --layer 9 --output v.txt", "layers must be"),
    "cache-vocab": ("--model M --vocab_file empty --output o", "empty: contains no words; give one word per line"),
    "check": ("--device tpu", "--device must be like"),
    "info": ("--model in.txt", "--model in.txt: "),
}


@pytest.mark.parametrize("command", REFUSED)
def test_an_error_of_the_library_is_one_line(toy, tmp_path, monkeypatch, command):
    """And nothing is written. Its other errors are asked where they are raised."""
    monkeypatch.chdir(tmp_path)
    words, message = REFUSED[command]
    (tmp_path / "in.txt").write_text("a b\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "v.txt").write_text("a 1 2\nb 2 1\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a").write_text("a b\n")
    (tmp_path / "M").symlink_to(os.path.dirname(toy[0]))
    before = sorted(tmp_path.rglob("*"))
    refused(elmo_fast(*command.split(), *words.split()), f"elmo-fast {command}: error: ", message)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed in.txt out --device cpu --cuda_device 0", "--device and --cuda_device name the same thing; give"),
        ("embed in.txt out --use-sentence-keys --format npz", "--use_sentence_keys needs --format hdf5"),
        ("embed in.txt out --pool max --shard 0/1", "--pool writes one file; leave out --shard"),
        ("embed in.txt no/out", "output_file 'no/out': there is no folder 'no'; create it first"),
        ("embed in.txt out --model M --weight_file w", "name a model with --model FOLDER (or an archive of it), or"),
        ("eval --model M --test_prefix in.txt --worst 0", "--worst must be 1 or more; got 0"),
        ("prepare --train_prefix in.txt --out_dir out --ray auto --processes 2", "--processes is of this machine"),
        ("neighbours --query a", "name one text, as TEXT or with --corpus"),
        ("neighbours in.txt --model M", "give a query of at least one word with --query, or"),
        ("neighbours in.txt --query a --query_file in.txt --model M", "--query and --query_file both name queries"),
        ("neighbours in.txt --query_file /dev/null --model M", "with --query_file; got '/dev/null'"),
        (
            "neighbours in.txt --query a --model M --column b",
            "--column b: in.txt is read as text, which has no columns",
        ),
        ("prepare --train_prefix in.txt --out_dir o --column b", "--column b: in.txt is read as text, which has no"),
        (
            "embed in.txt out --model M --format_in fasta --column b",
            "--column b: in.txt is read as fasta, which has no columns",
        ),
        ("neighbours in.txt --query_file in.txt --model M --index 0", "--query_file is for sentences, and --index for"),
        ("neighbours in.txt --query a --model M --index 0 --pool max", "--pool is for sentences, and --index for"),
        ("plot words", "name either --vectors FILE, or a model"),
        ("plot words --model M", "a model needs words to draw"),
        ("plot words --model M --words a --text in.txt", "--text needs a model, and excludes --words"),
        ("plot words --model mini --words a b --layer 1", "--layer and --tokenizer need --text"),
        ("plot words --model M --words a --output x.html", "must end in one of .png, .pdf, .svg"),
        ("plot senses --model M --text in.txt --word a --clusters 0", 'clusters must be "auto" or 1 to 1'),
        ("static export --model mini --vocab_file in.txt --output o.vec --layer 1", "--layer needs --corpus, and does"),
        ("static export --model mini --output o.vec", "give --vocab_file"),
        ("static neighbours v", "give --words, as --words king night, or --analogy"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(toy, tmp_path, monkeypatch, words, message):
    """None of two is taken in silence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a b\n")
    (tmp_path / "M").symlink_to(os.path.dirname(toy[0]))
    refused(elmo_fast(*words.split()), message)
    assert sorted(os.listdir(tmp_path)) == ["M", "in.txt"]


def test_too_little_room_is_said_before_anything_is_embedded(text, toy, tmp_path, monkeypatch):
    messages = ["the vectors take 1.", "KiB and 100 bytes are free; one layer (average or top) and float16 take less"]
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 100))
    refused(elmo_fast("embed", text, tmp_path / "out", "--top", "--device", "cpu", *pair(toy)), *messages)
    assert os.listdir(tmp_path) == ["in.txt"]


@pytest.mark.parametrize(("name", "words"), [("hdf5", "1 --stateful"), ("hdf5", "2"), ("safetensors", "2")])
def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_file_alone(toy, tmp_path, capsys, monkeypatch, name, words):
    """The disk has room for whole sentences, and then for a part of one."""
    text, old, left, plain = tmp_path / "in.txt", tmp_path / "out", [400_000], open
    text.write_text("a b c d e f g h\n" * 1000)
    old.write_text("old")

    class Disk(io.FileIO):
        def write(self, data):
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= (done := super().write(data[: left[0]]))
            return done

    def opened(path, mode="r", *words, **named):
        return io.BufferedRandom(Disk(path, "r+")) if mode == "r+b" else plain(path, mode, *words, **named)

    monkeypatch.setattr("builtins.open", opened)
    words = ["--format", name, "--threads", *words.split(), *pair(toy)]
    assert main(["embed", str(text), str(old), "--top", "-q", *words]) == 2
    assert "No space left on device: " in (error := capsys.readouterr().err)
    assert len(error.splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]
    assert old.read_text() == "old"


def begun(folder, toy, text, error):
    """An `embed` process that has begun to write: its temporary file is there and has grown."""
    words = ["--all", "--batch-size", "1", "--threads", "2", "--device", "cpu", *pair(toy)]
    child = forked("embed", text, folder / "out", *words, error=error)
    until(lambda: any(path.stat().st_size > 100_000 for path in folder.glob(".out.*.partial/out")))
    return child


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_in_the_middle_leaves_nothing_corrupt(toy, tmp_path, said, number, status):
    """The old file is still whole under its name; but for kill -9, which nothing can tidy up after, nothing else is."""
    text = tmp_path / "in.txt"
    text.write_text("a b c d e f g h\n" * 20_000)
    with h5py.File(tmp_path / "out", "w") as file:
        file["old"] = np.ones(3)
    child = begun(tmp_path, toy, text, said)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status, said.read_text()
    assert "Traceback" not in said.read_text()
    assert number != signal.SIGINT or "interrupted" in said.read_text()
    with h5py.File(tmp_path / "out") as file:
        assert list(file) == ["old"]
    if number != signal.SIGKILL:
        assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]
