"""prepare and vocab as a user starts them: what they print, what they refuse, and what is left when they are killed."""

import argparse
import gzip
import io
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from elmo_fast._io.fields import MIN_COUNT
from elmo_fast.cli._common import Progress
from elmo_fast.corpus import open_corpus, pieces, prepare, word_counts
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import DataConfig, load_preset, presets
from tests.cli.conftest import ran, refused
from tests.corpus.test_processes import alive, until
from tests.support.command_line import forked


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A working folder with the folder "texts" of a plain and a packed file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("b a b\n\nc\n")
    (tmp_path / "texts" / "b.gz").write_bytes(gzip.compress(b"a b d\n"))


def prepared(*words, out="out", text="texts"):
    """Return the log of `prepare`."""
    return ran("prepare", "--train-prefix", text, "--out-dir", out, *words).stderr


def test_prepare_tells_what_there_is_and_what_comes_next(texts):
    output = prepared("--min-count", 2)
    assert "text   7 words, 3 sentences; 7 distinct words" in output
    assert "vocab  5 words, which are 71.43% of the text" in output
    print_of = open_corpus("out").fingerprint[:16]
    assert re.search(rf"done   out written in [\d.]+s; [\d.]+ KiB, shards: 1, fingerprint: {print_of}", output)
    assert "elmo-fast pretrain --config small --train_prefix out --save_dir run" in output
    assert "existed already, unchanged" in prepared("--min-count", 2)
    assert prepared("--min-count", 2, "-q") == ""


@pytest.mark.filterwarnings("default:.* are outside the vocabulary")
def test_vocab_counts_and_prepare_takes_what_it_wrote(texts):
    """The same folder as when it builds the vocabulary itself; progress as lines where asked for."""
    lines, words = "--file-friendly-logging", ["vocab", "--train-prefix", "texts/*", "--vocab-file", "v"]
    assert "2 of 4 distinct words, 71.43% of 7 tokens" in ran(*words, "--min-count", 2).stderr
    assert pathlib.Path("v").read_text() == "<S>\n</S>\n<UNK>\nb\na\n"
    assert "(100%)" in ran(*words, lines, "--max-size", 4).stderr
    assert pathlib.Path("v").read_text() == "<S>\n</S>\n<UNK>\nb\n"
    assert "00:00 left, " in prepared("--vocab-file", "v", lines)
    prepared("--max-vocab-size", 4, out="two")
    assert open_corpus("out").fingerprint == open_corpus("two").fingerprint


def test_one_default_decides_which_words_are_rare_and_omissions_come_first(texts):
    """prepare, vocab, pretrain and Python leave out the same words; lines on them come before anything is written."""
    pathlib.Path("in.txt").write_text("a a a b b\n")
    line = "vocab  the softmax has 4 words (min_count 3); 1 of 2 distinct words, 40.0% of the text, are left out and"
    python = []
    again = prepare("in.txt", "again", processes=1, report=python.append).vocabulary.words
    for output in (ran("vocab", "--train-prefix", "in.txt", "--vocab-file", "v").stderr, prepared(text="in.txt")):
        assert [each.startswith(line) for each in output.splitlines()].count(True) == 1
    assert python[-1].startswith(line)
    words = open_corpus("out").vocabulary.words
    assert pathlib.Path("v").read_text().split() == words == again == ["<S>", "</S>", "<UNK>", "a"]
    assert {load_preset(preset).data.min_count for preset in presets()} == {DataConfig().min_count} == {MIN_COUNT}
    with pytest.raises(ElmoFastError, match=r"min_count 4: no word of the text occurs so often \(at most 3 times\)"):
        prepare("in.txt", "none", min_count=4, processes=1)


def test_a_mark_of_unknown_words_in_the_text_is_hinted_at(texts):
    """By vocab, by prepare, and by what a run asks for hints."""
    pathlib.Path("in.txt").write_text("the <unk> sat\n<unk> the the\n")
    outputs = [ran("vocab", "--train-prefix", "in.txt", "--vocab-file", "v", "--min-count", 1).stderr]
    outputs += [prepared("--min-count", 1, text="in.txt"), "\n".join(open_corpus("out").hints)]
    assert [output.count("HINT   the text contains <unk> 2 times (33.3%)") for output in outputs] == [1, 1, 1]


def test_prepare_reads_the_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a a\n\na\n")))
    prepared(text="-", out=tmp_path / "out")
    assert open_corpus(tmp_path / "out").tokens == 3


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_full_disk_leaves_nothing(limited, tmp_path, monkeypatch, processes):
    """The largest size of a file (EFBIG) stands for the disk's end (ENOSPC), here or in another process."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 160_000)
    monkeypatch.setattr(word_counts, "BYTES_PER_PROCESS", 1)
    (tmp_path / "in.txt").write_text("a b c d e f g h\n" * 20_000)
    words = ["--train-prefix", tmp_path / "in.txt", "--out-dir", tmp_path / "out", "--processes", processes]
    refused(limited("prepare", *words, limit=50_000), "File too large", "out")
    assert os.listdir(tmp_path) == ["in.txt"]


def start_run(folder, error):
    """A `prepare` process in the middle of its work, and the processes it has started."""
    words = ["prepare", "--train-prefix", folder / "in.txt", "--out-dir", folder / "out"]
    process = forked(*words, "--processes", 2, "--overwrite", error=error)
    until(lambda: len(list(folder.glob(".out.*.partial/*.ids"))) == 2)
    until(lambda: all(path.stat().st_size > 0 for path in folder.glob(".out.*.partial/*.ids")))
    children = [int(number) for number in os.listdir("/proc") if number.isdigit() and parent_of(number) == process]
    assert len(children) >= 2
    return process, children


def parent_of(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_in_the_middle_leaves_the_old_folder_and_no_process(tmp_path, said, number, status):
    """The next run removes files that kill -9 left behind."""
    (tmp_path / "in.txt").write_text("a a a\n")
    words = ["--train-prefix", tmp_path / "in.txt", "--out-dir", tmp_path / "out", "--overwrite", "-q"]
    ran("prepare", *words)
    before = open_corpus(tmp_path / "out").fingerprint
    (tmp_path / "in.txt").write_text("a b c d e f g h\n" * 3_000_000)
    process, children = start_run(tmp_path, said)
    os.kill(process, number)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == status, said.read_text()
    assert "Traceback" not in said.read_text()
    until(lambda: not any(map(alive, children)))
    assert open_corpus(tmp_path / "out").fingerprint == before
    if number != signal.SIGKILL:
        assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]
    (tmp_path / "in.txt").write_text("a a b a\n")
    ran("prepare", *words)
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]


def test_memory_does_not_grow_with_the_text(tmp_path):
    """Peak of a process after text of 2 MB, and after 20 MB of the same words."""
    words = ["prepare", "--out-dir", str(tmp_path / "out"), "--processes", "1", "--overwrite", "--train-prefix"]
    for name, lines in (("small", 125_000), ("large", 1_250_000)):
        (tmp_path / name).write_text("a b c d e f g h\n" * lines)
    code = (
        "import resource, sys; from elmo_fast.cli.main import main\n"
        "for name in ('small', 'large'):\n"
        "    assert main([*sys.argv[1:], name]) == 0\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    small, large = map(int, done.stdout.split())
    assert large < small + 30_000, "KiB"


@pytest.mark.parametrize("quiet", [False, True])
def test_the_bar_shows_bytes_words_and_time(monkeypatch, capsys, quiet):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(argparse.Namespace(quiet=quiet), unit="B") as progress:
        progress.read(500_000, 2_000_000, 100_000)
        progress.read(2_000_000, 2_000_000, 400_000)
    output = capsys.readouterr().err
    assert ("2.00M/2.00M" in output, "words/s" in output) == (not quiet, not quiet)
    assert progress.n == 2_000_000
