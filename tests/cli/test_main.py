"""The console entry: what it prints, what it turns into one sentence, and what it must not import."""

import errno
import os
import subprocess
import sys
import types
import warnings

import pytest

from elmo_fast.cli import main as entry
from elmo_fast.cli._parser import Command, option
from elmo_fast.errors import ElmoFastError
from tests.cli.conftest import refused
from tests.support.command_line import elmo_fast


def run(*words, **options):
    """`elmo-fast` in a process of its own."""
    return subprocess.run([sys.executable, "-m", "elmo_fast", *words], stderr=subprocess.PIPE, **options)


class ProbeOptions(Command):
    """Of a command that is there for the tests."""

    some_flag: str = ""
    """an option"""
    text: str | None = option(None, positional=True, nargs="?")
    """an argument"""


@pytest.fixture
def command(monkeypatch):
    """Puts a command named "probe" in the table, with this function as its run()."""

    def install(function):
        def run_probe(options: ProbeOptions):
            return function(options)

        module = types.SimpleNamespace(run_probe=run_probe)
        monkeypatch.setitem(entry.COMMANDS, "probe", ("probe", "a probe"))
        monkeypatch.setitem(sys.modules, "elmo_fast.cli.probe", module)

    return install


def raising(error):
    def fail(arguments):
        raise error

    return fail


def test_help_and_version():
    """`elmo-fast` alone prints the help too, and ends with status 2."""
    help_page = elmo_fast("--help")
    assert (help_page.returncode, elmo_fast("help").stdout) == (0, help_page.stdout)
    assert [name for name in entry.COMMANDS if " " not in name and name not in help_page.stdout] == []
    assert (elmo_fast().returncode, "cache-vocab" in elmo_fast().stdout) == (2, True)
    assert elmo_fast("help", "embed").stdout == elmo_fast("embed", "--help").stdout
    assert elmo_fast("--version").stdout.startswith("elmo-fast ")


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


def test_hyphens_in_names_become_underscores_and_values_stay(command):
    typed = ["--weight-file", "a-b", "--query=x-y", "-v", "--a-b=c-d", "--", "--e-f"]
    assert entry.normalised(typed) == ["--weight_file", "a-b", "--query=x-y", "-v", "--a_b=c-d", "--", "--e-f"]
    seen = []
    command(lambda arguments: seen.append(arguments.some_flag))
    assert [entry.main(["probe", flag, "x-y"]) for flag in ("--some-flag", "--some_flag")] == [0, 0]
    assert seen == ["x-y", "x-y"]


def test_status_of_a_command_is_returned(command):
    command(lambda arguments: 3)
    assert entry.main(["probe"]) == 3


ABSENT = FileNotFoundError(errno.ENOENT, "No such file", "a")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("", ElmoFastError("wanted this, got that"), "error: wanted this, got that"),
        ("", OSError(errno.ENOSPC, "No space left", "out.hdf5"), "error: No space left: 'out.hdf5'"),
        ("", OSError("Unable to open file"), "error: Unable to open file"),
        ("--some_flag a", ABSENT, "error: --some_flag: No such file: 'a'"),
        ("a", ABSENT, "error: text: No such file: 'a'"),
        ("--some_flag a", ElmoFastError("a: wanted a model"), "error: --some_flag a: wanted a model"),
        ("--some_flag a", ElmoFastError("ab: wanted a model"), "error: ab: wanted a model"),
        ("", KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_error_of_the_user_is_one_line_that_names_the_argument(command, words, error, message):
    command(raising(error))
    done = elmo_fast("probe", *words.split())
    assert done.stderr.lstrip() == f"elmo-fast probe: {message}\n"
    assert done.returncode == (130 if message == "interrupted" else 2)


def test_programming_errors_keep_their_traceback(command):
    command(lambda arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        entry.main(["probe"])


def test_warnings_are_one_line(command):
    def warn(arguments):
        warnings.simplefilter("always")
        warnings.warn("slow path", UserWarning, stacklevel=1)

    command(warn)
    done = elmo_fast("probe")
    assert (done.returncode, done.stderr) == (0, "elmo-fast: warning: slow path\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed in out --batch-siz 3", "unrecognized arguments: --batch_siz 3; did you mean --batch_size?"),
        ("convert --model run", "elmo-fast convert: error: the following arguments are required: out_dir"),
        ("embed in out --average --top", "argument --top: not allowed with argument --average"),
        ("pretrain --shuffle x", """Parser key "shuffle": Expected a <class 'bool'>. Got value: x"""),
        ("convert --to hdf --out_dir x", "argument --to: invalid choice: 'hdf' (choose from 'safetensors', 'hdf5')"),
        ("plot", "elmo-fast plot: error: "),
    ],
)
def test_what_the_parser_refuses_is_one_line_with_the_nearest_option_and_where_all_are(words, message):
    done = elmo_fast(*words.split())
    first, second = done.stderr.splitlines()
    assert (done.returncode, message in first) == (2, True), first
    assert second.endswith("--help lists the options")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embde", "elmo-fast: error: unknown command 'embde'; did you mean embed?"),
        ("xyz", "elmo-fast: error: unknown command 'xyz'; commands: vocab, prepare, pretrain"),
        ("static trian", "elmo-fast static: error: unknown command 'trian'; did you mean train?"),
        ("plot senss --text x", "elmo-fast plot: error: unknown command 'senss'; did you mean senses?"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest(words, message):
    refused(elmo_fast(*words.split()), message)


def test_a_reader_that_leaves_gets_no_traceback():
    """Help of all kinds and a command's own output into a pipe whose other end is closed: the status of SIGPIPE."""
    own = ["embed", "in", "out", "--print_config"]
    for words in (["--help"], ["pretrain", "--help"], ["static", "--help"], ["--version"], own):
        there, here = os.pipe()
        os.close(there)
        with open(here, "wb") as closed:
            done = run(*words, stdout=closed)
        assert (done.returncode, done.stderr) == (141, b""), words


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output_is_one_sentence():
    for words in (["--help"], ["pretrain", "--help"]):
        with open("/dev/full", "wb") as full:
            done = run(*words, stdout=full)
        assert done.returncode == 2
        assert done.stderr.endswith(b"No space left on device\n")
        assert len(done.stderr.splitlines()) == 1, done.stderr
