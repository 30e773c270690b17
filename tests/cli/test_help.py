"""--help: one style, no types of Python, defaults that say something, one sentence for a shared option."""

import collections
import io

import pytest

from elmo_fast.cli.main import COMMANDS, command_module

NAMES = ("Adam's", "AdamW's", "JSON", "YAML,", "HDF5", "S,", "LSTM")  # what a sentence may begin with in upper case


def parser_of(command):
    """A new parser of a command of one or two words."""
    name, _, kind = command.partition(" ")
    parser = command_module(name).build_parser()
    return parser.parser_of(kind) if kind else parser


def commands():
    """The names of all commands, of two words too."""
    kinds = {name: getattr(command_module(name).build_parser(), "kinds", [""]) for name in COMMANDS}
    return [f"{name} {kind}".strip() for name in kinds for kind in kinds[name]]


@pytest.fixture(scope="module")
def every():
    return {name: parser_of(name) for name in commands()}


def helps(parser):
    """Option -> its help, as it is printed."""
    formatter = parser._get_formatter()
    return {each.option_strings[-1]: formatter._expand_help(each) for each in parser._actions if each.option_strings}


def test_no_sentence_has_types_or_null_defaults(every):
    for name, parser in every.items():
        for option, told in helps(parser).items():
            assert "(type:" not in told, (name, option)
            assert "Literal[" not in told, (name, option)
            assert not told.endswith((".", "default: null)", "default: False)")), (name, option, told)
            assert told[0].islower() or told.split()[0] in NAMES or not told[0].isalpha(), (name, option, told)


def test_a_default_of_zero_and_what_is_required_are_shown(every):
    assert helps(every["pretrain"])["--state_reset"].endswith("(default: 0.0)")
    assert helps(every["embed"])["--seed"] == "random seed (default: 0)"
    assert helps(every["vocab"])["--vocab_file"].endswith("(required)")


def test_choices_are_listed_where_the_default_is_null_too(every):
    out = io.StringIO()
    every["merge"].print_help(out)
    assert "--format {hdf5,hdf5-flat,safetensors,npz}" in out.getvalue()


def test_the_common_options_have_one_sentence_each(every):
    """Less the default, which may differ."""
    common = (
        "--model",
        "--options_file",
        "--weight_file",
        "--prefix",
        "--file_friendly_logging",
        "--threads",
        "--device",
    )
    told = collections.defaultdict(set)
    for name, parser in every.items():
        for option, sentence in helps(parser).items():
            if option in common and name.partition(" ")[0] not in (
                "report",
                "task",
            ):  # whose model is a setting of its own
                told[option].add(sentence.partition(" (default: ")[0])
    assert {option: len(each) for option, each in told.items()} == dict.fromkeys(common, 1)
