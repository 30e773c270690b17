"""Users' mistakes on the command line: one clear sentence, status 2, no traceback, nothing spoilt."""

import errno
import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from elmo_fast.cli.main import main
from elmo_fast.text import survey
from tests.cli.conftest import pair, refused
from tests.command_line import elmo_fast


@pytest.fixture
def run(toy, tmp_path):
    """embed of a file of the given bytes to `out`, which must be absent afterwards where that fails."""

    def start(data, out=None):
        source = tmp_path / "in.txt"
        source.write_bytes(data)
        done = elmo_fast("embed", source, out or tmp_path / "out", "--top", "--device", "cpu", *pair(toy))
        if done.returncode:
            assert not (tmp_path / "out").exists()
            assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]
        return done

    return start


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\n\n  \n", ["in.txt is empty: every line is blank"]),
        (b"a b\nc\x00d\n", ["in.txt, line 2", "NUL", "binary"]),
        (b"a b\n\xff\xfe\n", ["in.txt, line 2", "0xff", "not UTF-8"]),
    ],
    ids=["blank lines", "NUL", "not UTF-8"],
)
def test_text_that_cannot_be_embedded(run, data, words):
    refused(run(data), *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed in.txt out.hdf5 --average --top", "argument --top: not allowed with argument --average"),
        ("embed in.txt out.hdf5 --layers top --average", "argument --average: not allowed with argument --layers"),
        ("embed in.txt out.hdf5 --device cpu --cuda_device 0", "--device and --cuda_device name the same thing; give"),
        ("prepare --train_prefix in.txt --out_dir out --ray auto --processes 2", "--processes is of this machine"),
        ("plot words --model mini --words a b --layer 1", "--layer and --tokenizer need --text"),
        ("static export --model mini --vocab_file in.txt --output o.vec --layer 1", "--layer needs --corpus, and does"),
    ],
)
def test_options_that_exclude_each_other_are_refused(tmp_path, monkeypatch, words, message):
    """None of two is taken in silence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a b\n")
    refused(elmo_fast(*words.split()), message)
    assert os.listdir(tmp_path) == ["in.txt"]


def test_lines_of_a_megabyte_and_words_of_ten_thousand_bytes_are_embedded(run, tmp_path):
    """Accepted: all tokens of the line have vectors, and a word counts by its first 48 bytes."""
    done = run(b"word " * 200_000 + b"\n" + b"x" * 10_000 + b"\n" + b"x" * 48 + b"\n")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out") as file:
        assert file["0"].shape == (200_000, 16)
        assert np.isfinite(file["0"][()]).all()
        np.testing.assert_allclose(file["1"][()], file["2"][()], atol=1e-6)


def test_too_little_room_is_said_before_anything_is_embedded(text, toy, tmp_path, monkeypatch):
    messages = ["the vectors take 1.", "KiB and 100 bytes are free; one layer (average or top) and float16 take less"]
    monkeypatch.setattr("elmo_fast.embed.token_files.free_bytes", lambda path: 100)
    refused(elmo_fast("embed", text, tmp_path / "out", "--top", "--device", "cpu", *pair(toy)), *messages)
    assert os.listdir(tmp_path) == ["in.txt"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("absent.txt out", "absent.txt|No such file"),
        ("in.txt no/out", "no/out|there is no folder 'no'"),
        ("in.txt out --weight-file absent.hdf5", "absent.hdf5"),
        ("in.txt out --model folder", "--model folder|--weight_file"),
        ("in.txt out --batch-size x", "batch_size"),
        ("in.txt out --batch-size 0", "batch_size|got 0"),
        ("in.txt out --max-tokens 0", "max_tokens|got 0"),
        ("in.txt out --precision int4", "precision"),
        ("in.txt out --no-such-option", "no_such_option"),
        ("in.txt out --device tpu", "--device|tpu"),
        ("in.txt out --threads 0", "--threads"),
        ("in.txt out --use-sentence-keys", "lines 1 and 3 are the same"),
        ("slash.txt out --use-sentence-keys", "line 1|'/'"),
        ("in.txt out --use-sentence-keys --format npz", "--use_sentence_keys needs --format hdf5"),
    ],
)
def test_wrong_words_on_the_command_line_are_named(toy, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\nb c\na\n")
    (tmp_path / "slash.txt").write_text("b / c\n")
    refused(elmo_fast("embed", *pair(toy), "--top", *words.split()), *named.split("|"))
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "slash.txt"]


def test_a_folder_that_cannot_be_written(run, tmp_path):
    """A folder without the right to write; /sys where the tests run as root, whom no such right holds back."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    target = os.path.join(folder if os.geteuid() else "/sys", "out")
    done = run(b"a b\n", out=target)
    refused(done, "out")
    assert not os.path.exists(target)


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name in ("hdf5", "safetensors") for words in ("1 --stateful", "2", "4")]
)
def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_file_alone(toy, tmp_path, capsys, monkeypatch, name, words):
    """The disk has room for whole sentences, and then for a part of one."""
    text, old, left, write = tmp_path / "in.txt", tmp_path / "out", [400_000], os.pwrite
    text.write_text("a b c d e f g h\n" * 1000)
    old.write_text("old")

    def pwrite(handle, data, place):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(handle, data[: left[0]], place)
        left[0] -= done
        return done

    monkeypatch.setattr(os, "pwrite", pwrite)

    words = ["--format", name, "--threads", *words.split(), *pair(toy)]
    assert main(["embed", str(text), str(old), "--top", "-q", *words]) == 2
    assert "No space left on device: " in (error := capsys.readouterr().err)
    assert len(error.splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]
    assert old.read_text() == "old"


@pytest.mark.parametrize("name", ["hdf5-flat", "npz"])
def test_a_full_disk_leaves_the_old_file(limited, toy, tmp_path, name):
    """The largest size of a file (EFBIG) stands for the disk's end (ENOSPC): both fail in the middle of a write."""
    text, old = tmp_path / "in.txt", tmp_path / "old"
    text.write_text("a b c d e f g h\n" * 1000)
    old.write_text("old")
    refused(limited("embed", text, old, "--top", "--format", name, *pair(toy), limit=200_000), "File too large", "old")
    assert (old.read_text(), sorted(os.listdir(tmp_path))) == ("old", ["in.txt", "old"])


def begun(folder, toy, text, threads):
    """An `embed` process that has begun to write: its temporary file is there and has grown."""
    words = ["embed", text, str(folder / "out"), "--all", "--batch-size", "1", "--threads", threads, *pair(toy)]
    process = subprocess.Popen([sys.executable, "-m", "elmo_fast", *words], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if any(path.stat().st_size > 100_000 for path in folder.glob(".out.*.partial/out")):
            return process
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"embed ended or never wrote: {os.listdir(folder)} {process.communicate()}")


@pytest.mark.parametrize(
    ("number", "threads", "status"),
    [
        (signal.SIGINT, "1", 130),
        (signal.SIGINT, "2", 130),
        (signal.SIGTERM, "2", 143),
        (signal.SIGKILL, "2", -signal.SIGKILL),
    ],
)
def test_a_signal_in_the_middle_leaves_nothing_corrupt(toy, tmp_path, number, threads, status):
    """The old file is still whole under its name; but for kill -9, which nothing can tidy up after, nothing else is."""
    text = tmp_path / "in.txt"
    text.write_text("a b c d e f g h\n" * 20_000)
    with h5py.File(tmp_path / "out", "w") as file:
        file["old"] = np.ones(3)
    process = begun(tmp_path, toy, str(text), threads)
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == status, error
    assert "Traceback" not in error
    assert number != signal.SIGINT or "interrupted" in error
    with h5py.File(tmp_path / "out") as file:
        assert list(file) == ["old"]
    if number != signal.SIGKILL:
        assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path):
    from elmo_fast.errors import ElmoFastError

    path = tmp_path / "in.txt"
    path.write_text("a b\nc\n")
    text = survey(path)
    for changed in ("a b\nc d\n", "a b\nc\nd\n", "a b\n"):
        path.write_text(changed)
        with pytest.raises(ElmoFastError, match="changed while being read"):
            list(text.sentences())
