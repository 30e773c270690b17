"""--help: one style, no types of Python, defaults that say something, one sentence for a shared option."""

import collections
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


def test_no_sentence_has_types_or_null_defaults(every):
    for name, parser in every.items():
        for option, text in helps(parser).items():
            assert "(type:" not in text, (name, option)
            assert "Literal[" not in text, (name, option)
            assert not text.endswith((".", "default: null)", "default: False)")), (name, option, text)
            assert text[0].islower() or text.split()[0] in NAMES or not text[0].isalpha(), (name, option, text)


def test_a_default_of_zero_and_what_is_required_are_shown(every):
    assert helps(every["pretrain"])["--state_reset"].endswith("(default: 0.0)")
    assert helps(every["embed"])["--seed"] == "random seed (default: 0)"
    assert helps(every["vocab"])["--vocab_file"].endswith("(required)")


def test_the_common_options_have_one_sentence_each(every):
    """Less the default, which may differ."""
    common = ["--model", "--options_file", "--weight_file", "--prefix", "--file_friendly_logging"]
    common += ["--threads", "--device"]
    sentences = collections.defaultdict(set)
    for name, parser in every.items():
        own = name.partition(" ")[0] in ("report", "task")  # whose model is a setting of its own
        for option, sentence in helps(parser).items():
            if option in common and not own:
                sentences[option].add(sentence.partition(" (default: ")[0])
    assert {option: len(each) for option, each in sentences.items()} == dict.fromkeys(common, 1)


def test_the_docstring_below_a_field_is_its_help(every):
    """A field that has none has the help that commands share."""
    text = helps(every["pretrain"])
    assert text["--state_reset"].startswith("probability, per row and step, that a row starts from a zero LSTM state")
    assert text["--seed"] == "seed of initial weights, sentence order, dropout and negative samples (default: 0)"
    assert text["--prefix"] == helps(every["embed"])["--prefix"]
    assert helps(every["report"])["--train_path"] == helps(every["task train"])["--train_path"]


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
