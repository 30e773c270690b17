"""--help: one style, no types of Python, defaults that say something, one sentence for a shared option."""

import subprocess

import pytest

from elmo_fast.cli.main import main, parsers

NAMES = ("Adam's", "AdamW's", "JSON", "YAML,", "HDF5", "S,", "LSTM")  # what a sentence may begin with in upper case


@pytest.fixture(scope="module")
def every():
    """The parsers of all commands that have options, those of two words too."""
    return {name: parser for name, parser in parsers().items() if parser._subcommands_action is None}


def helps(parser):
    """Option -> its help, as it is printed."""
    formatter = parser._get_formatter()
    return {each.option_strings[-1]: formatter._expand_help(each) for each in parser._actions if each.option_strings}


def test_a_default_of_zero_and_what_is_required_are_shown(every):
    assert helps(every["pretrain"])["--state_reset"].endswith("(default: 0.0)")
    assert helps(every["embed"])["--seed"] == "random seed (default: 0)"
    assert helps(every["vocab"])["--vocab_file"].endswith("(required)")


def test_the_shell_completes_commands_and_options(tmp_path, capsys):
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", "shtab-bash"])
    assert not stop.value.code
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    complete = 'source completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_elmo_fast; echo "${COMPREPLY[@]}"'
    for words, expected in (
        (["emb"], "embed"),
        (["embed", "--poo"], "--pool"),
        (["plot", "senses", "--match"], "--match_case"),
    ):
        command = ["bash", "-c", complete, "bash", "elmo-fast", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout.split() == [expected], done.stderr
