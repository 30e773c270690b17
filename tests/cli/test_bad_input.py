"""What users do wrong, through the command line: one clear sentence, status 2, no traceback, nothing spoilt."""

import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from elmo_fast.cli.main import main
from elmo_fast.modules import sentence_vectors
from elmo_fast.text import survey
from tests.cli.conftest import pair, refused
from tests.command_line import elmo_fast

FORMATS = ["hdf5", "hdf5-flat", "safetensors", "npz"]


@pytest.fixture
def run(limited, toy, tmp_path):
    """embed of a file of the given bytes to `out`, which must be absent afterwards unless told otherwise."""

    def start(data, *words, options=toy[0], weights=toy[1], out=None, limit=None):
        source = tmp_path / "in.txt"
        source.write_bytes(data)
        target = out or tmp_path / "out"
        words = ["embed", source, target, "--top", "--options-file", options, "--weight-file", weights, *words]
        done = limited(*words, limit=limit) if limit else elmo_fast(*words)
        if done.returncode:
            assert not (tmp_path / "out").exists()
            assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]
        return done

    return start


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["in.txt is empty"]),
        (b"\n\n  \n", ["in.txt is empty: every line is blank"]),
        (b"a b\nc\x00d\n", ["in.txt, line 2", "NUL", "binary"]),
        (b"a b\n\xff\xfe\n", ["in.txt, line 2", "0xff", "not UTF-8"]),
        (bytes(range(256)) * 8, ["in.txt, line 1"]),
    ],
    ids=["empty", "blank lines", "NUL", "not UTF-8", "all bytes"],
)
def test_text_that_cannot_be_embedded(run, data, words):
    refused(run(data), *words)


def test_a_line_of_a_megabyte_and_a_word_of_ten_thousand_bytes_are_embedded(run, tmp_path):
    """Accepted: all tokens of the line have vectors, and a word counts by its first 48 bytes."""
    done = run(b"word " * 200_000 + b"\n" + b"x" * 10_000 + b"\n" + b"x" * 48 + b"\n")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out") as file:
        assert file["0"].shape == (200_000, 16)
        assert np.isfinite(file["0"][()]).all()
        np.testing.assert_allclose(file["1"][()], file["2"][()], atol=1e-6)


def test_a_batch_that_cannot_fit_into_memory_names_its_longest_line(text, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sentence_vectors, "UNASKED_BYTES", 0)
    monkeypatch.setattr(sentence_vectors.memory, "available", lambda: 1000)
    words = ["embed", text, str(tmp_path / "out"), "--top", *pair(toy)]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "line 2 has 9 tokens" in error
    assert "KiB of memory where 1000 bytes are left" in error
    assert "max_tokens" in error
    assert os.listdir(tmp_path) == ["in.txt"]


def test_a_damaged_model_is_named(run, toy, tmp_path):
    """Which file, and what is wrong with it: tests/checkpoints has every damage."""
    options, weights = (shutil.copy(file, tmp_path) for file in toy)
    os.truncate(weights, os.path.getsize(weights) // 2)
    refused(run(b"a\n", weights=weights), "weights.hdf5")
    pathlib.Path(options).write_text(pathlib.Path(toy[0]).read_text().replace("proj_clip", "proj_clp"))
    refused(run(b"a\n", options=options), "options.json", "lstm.proj_clp", "proj_clip")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["absent.txt", "out", "--top"], ["absent.txt", "No such file"]),
        (["in.txt", "no/out", "--top"], ["no/out", "there is no folder 'no'"]),
        (["in.txt", "out", "--top", "--weight-file", "absent.hdf5"], ["absent.hdf5"]),
        (["in.txt", "out", "--top", "--model", "folder"], ["--model folder", "--weight_file"]),
        (["in.txt", "out", "--top", "--batch-size", "x"], ["batch_size"]),
        (["in.txt", "out", "--top", "--batch-size", "0"], ["batch_size", "got 0"]),
        (["in.txt", "out", "--top", "--max-tokens", "0"], ["max_tokens", "got 0"]),
        (["in.txt", "out", "--top", "--precision", "int4"], ["precision"]),
        (["in.txt", "out", "--top", "--no-such-option"], ["no_such_option"]),
        (["in.txt", "out", "--top", "--device", "tpu"], ["--device", "tpu"]),
        (["in.txt", "out", "--top", "--threads", "0"], ["--threads"]),
        (["in.txt", "out", "--top", "--use-sentence-keys"], ["lines 1 and 3 are the same"]),
        (["slash.txt", "out", "--top", "--use-sentence-keys"], ["line 1", "'/'"]),
        (
            ["in.txt", "out", "--top", "--use-sentence-keys", "--format", "npz"],
            ["--use_sentence_keys needs --format hdf5"],
        ),
    ],
)
def test_wrong_words_on_the_command_line_are_named(toy, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\nb c\na\n")
    (tmp_path / "slash.txt").write_text("b / c\n")
    refused(elmo_fast("embed", *pair(toy), *words), *named)
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


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_leaves_the_old_file(run, tmp_path, name):
    """The largest size of a file (EFBIG) stands for the disk's end (ENOSPC): both fail in the middle of a write."""
    old = tmp_path / "old"
    old.write_text("old")
    done = run(b"a b c d e f g h\n" * 1000, "--format", name, out=old, limit=200_000)
    refused(done, "File too large", "old")
    assert old.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "old"]


@pytest.mark.parametrize("words", [["--threads", "1", "--stateful"], ["--threads", "2"], ["--threads", "4"]])
@pytest.mark.parametrize("name", ["hdf5", "safetensors"])
def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(toy, tmp_path, capsys, monkeypatch, name, words):
    """The disk has room for whole sentences, and then for a part of one."""
    text, left, write = tmp_path / "in.txt", [400_000], os.pwrite
    text.write_text("a b c d e f g h\n" * 1000)

    def pwrite(handle, data, place):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(handle, data[: left[0]], place)
        left[0] -= done
        return done

    monkeypatch.setattr(os, "pwrite", pwrite)

    assert main(["embed", str(text), str(tmp_path / "out"), "--top", "--format", name, "-q", *pair(toy), *words]) == 2
    assert "No space left on device: " in (error := capsys.readouterr().err)
    assert len(error.splitlines()) == 1
    assert os.listdir(tmp_path) == ["in.txt"]


def test_too_little_room_is_said_before_anything_is_embedded(text, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("elmo_fast.token_files.formats.free_bytes", lambda path: 100)
    words = ["embed", text, str(tmp_path / "out"), "--top", *pair(toy)]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "no space left on device" in error
    assert re.search(r"the vectors take [\d.]+ KiB and 100 bytes are free", error)
    assert os.listdir(tmp_path) == ["in.txt"]


def test_devices_are_no_output(run):
    refused(run(b"a b\n", out="/dev/full"), "/dev/full", "a device or pipe")
    assert not os.path.isfile("/dev/full")


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
