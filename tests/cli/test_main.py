"""The console entry: what it prints, what it turns into one sentence, and what it must not import."""

import errno
import os
import subprocess
import sys
import types

import pytest

from elmo_fast.cli import main as entry
from elmo_fast.errors import ElmoFastError


def run(*words: str, **kwargs):
    return subprocess.run([sys.executable, "-m", "elmo_fast", *words], capture_output=True, text=True, **kwargs)


@pytest.fixture
def command(monkeypatch):
    """Puts a command named "probe" in the table whose run() is the function given."""

    def install(function):
        def options(parser):
            parser.add_argument("--some_flag", type=str, default="")
            parser.add_argument("text", type=str, nargs="?")

        module = types.SimpleNamespace(probe_options=options, run_probe=function)
        monkeypatch.setitem(entry.COMMANDS, "probe", ("probe", "a probe"))
        monkeypatch.setitem(sys.modules, "elmo_fast.cli.probe", module)

    return install


def test_help_names_every_command_and_alias():
    done = run("--help")
    assert done.returncode == 0
    for name in [*(name for name in entry.COMMANDS if " " not in name), *entry.ALIASES]:
        assert name in done.stdout


def processor_seconds(*words):
    """What Python takes for these words: processor time, which other programs do not stretch."""
    before = os.times()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_is_quick():
    """The cheapest of five starts takes under 0.3 s more than Python's own."""
    help_costs = min(processor_seconds("-m", "elmo_fast", "--help") for _ in range(5))
    assert help_costs - min(processor_seconds("-c", "pass") for _ in range(5)) < 0.3


def test_parsing_imports_no_large_library():
    """The help of every command, and what the parser refuses (tests/test_import.py: of none)."""
    code = """import sys
from elmo_fast.cli.main import COMMANDS, main
for words in [*([*name.split(), "--help"] for name in COMMANDS), ["embed", "a"]]:
    try:
        main(words)
    except SystemExit as stop:
        assert stop.code == (2 if words[1] == "a" else 0)
    loaded = {"torch", "h5py", "matplotlib", "sklearn", "gensim"} & set(sys.modules)
    assert not loaded, (words, loaded)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_command_is_an_error():
    assert run().returncode == 2


def test_unknown_command_names_the_closest():
    done = run("embde")
    assert done.returncode == 2
    assert "'embed'" in done.stderr
    assert "Traceback" not in done.stderr


def test_version():
    assert run("--version").stdout.startswith("elmo-fast ")


def test_hyphens_in_names_become_underscores_and_values_stay():
    given = ["--weight-file", "a-b", "--query=x-y", "-v", "--a-b=c-d", "--", "--e-f"]
    assert entry.normalised(given) == ["--weight_file", "a-b", "--query=x-y", "-v", "--a_b=c-d", "--", "--e-f"]


@pytest.mark.parametrize("flag", ["--some-flag", "--some_flag"])
def test_both_spellings_reach_the_command(command, flag):
    seen = []
    command(lambda arguments: seen.append(arguments.some_flag))
    assert entry.main(["probe", flag, "x-y"]) == 0
    assert seen == ["x-y"]


def test_status_of_a_command_is_returned(command):
    command(lambda arguments: 3)
    assert entry.main(["probe"]) == 3


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ElmoFastError("wanted this, got that"), 2, "wanted this, got that"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.hdf5"), 2, "No space left on device: 'out.hdf5'"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "in.txt"), 2, "'in.txt'"),
        (OSError("Unable to open file"), 2, "Unable to open file"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_user_errors_become_one_line(command, capsys, error, status, message):
    def fail(arguments):
        raise error

    command(fail)
    assert entry.main(["probe"]) == status
    out = capsys.readouterr()
    assert message in out.err
    assert len(out.err.strip().splitlines()) == 1
    assert "Traceback" not in out.err


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (["--some_flag", "a"], FileNotFoundError(errno.ENOENT, "No such file", "a"), "--some_flag: No such file: 'a'"),
        (["a"], FileNotFoundError(errno.ENOENT, "No such file", "a"), "text: No such file: 'a'"),
        (["--some_flag", "a"], ElmoFastError("a: wanted a model"), "--some_flag a: wanted a model"),
        (["--some_flag", "a"], ElmoFastError("ab: wanted a model"), "ab: wanted a model"),
    ],
)
def test_an_error_names_the_argument_that_it_is_about(command, capsys, words, error, told):
    def fail(arguments):
        raise error

    command(fail)
    assert entry.main(["probe", *words]) == 2
    assert capsys.readouterr().err == f"elmo-fast probe: error: {told}\n"


def test_help_lists_no_option_that_does_nothing(capsys):
    for words in ("merge", "convert", "download", "upload", "vocab", "prepare", "plot layers", "report"):
        with pytest.raises(SystemExit):
            entry.main([*words.split(), "--help"])
        told = capsys.readouterr().out
        assert "--verbose" in told
        assert "--device" not in told
        assert "--seed " not in told


def test_programming_errors_keep_their_traceback(command):
    command(lambda arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        entry.main(["probe"])


def test_warnings_are_one_line(command, capsys):
    import warnings

    def warn(arguments):
        warnings.simplefilter("always")
        warnings.warn("slow path", UserWarning, stacklevel=1)

    command(warn)
    assert entry.main(["probe"]) == 0
    assert capsys.readouterr().err == "elmo-fast: warning: slow path\n"


def test_bad_option_prints_usage_and_exits_2(command):
    command(lambda arguments: 0)
    with pytest.raises(SystemExit) as stop:
        entry.main(["probe", "--no-such-flag"])
    assert stop.value.code == 2


def test_a_wrong_choice_is_one_line_that_names_option_and_choices(capsys):
    for words, wanted in (
        (["convert", "--model", "run", "--to", "hdf", "--outdir", "x"], """"to": Expected a typing.Literal['safe"""),
        (["embed", "in", "out", "--format_in", "csv"], "['text', 'fasta', 'parquet', 'dataset']. Got value: csv"),
        (["static", "train", "--wrong", "x"], "unrecognized arguments: --wrong x"),
        (["static", "trian"], "invalid choice: 'trian' (choose from 'train'"),
    ):
        with pytest.raises(SystemExit) as leaving:
            entry.main(words)
        assert leaving.value.code == 2
        first, second = capsys.readouterr().err.splitlines()
        assert first.startswith(f"elmo-fast {words[0]}" if "wrong" not in first else "elmo-fast static train: error")
        assert wanted in first
        assert second.endswith("--help lists the options")


def test_a_reader_that_leaves_gets_no_traceback():
    """Help of all kinds and a command's own output into a pipe whose other end is closed: the status of SIGPIPE."""
    for words in (["--help"], ["pretrain", "--help"], ["static", "--help"], ["--version"], ["info"]):
        there, here = os.pipe()
        os.close(there)
        with open(here, "wb") as closed:
            done = subprocess.run([sys.executable, "-m", "elmo_fast", *words], stdout=closed, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (141, b""), words


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output_is_one_sentence():
    for words in (["--help"], ["pretrain", "--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([sys.executable, "-m", "elmo_fast", *words], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 2
        assert done.stderr.endswith(b"No space left on device\n")
        assert len(done.stderr.splitlines()) == 1, done.stderr
