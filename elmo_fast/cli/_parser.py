"""The commands' parser: options that several commands have, and errors of one sentence."""

import argparse
import contextlib
import dataclasses
import difflib
import glob
import itertools
import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jsonargparse

from elmo_fast.cli._config_file import Given
from elmo_fast.errors import CheckpointError, ElmoFastError, sentence_of
from elmo_fast.fields import MIN_COUNT, PREFIX
from elmo_fast.files import replaces
from elmo_fast.op_choices import TOKENIZERS, InferencePrecision, Tokenizer

# The options that several commands have: name -> what add_argument takes.
SHARED: dict[str, dict[str, Any]] = {
    "seed": {"type": int, "default": 0, "help": "random seed"},
    "device": {"type": str, "default": "cpu", "help": 'device: "cpu", "cuda" or "cuda:1"'},
    "threads": {
        "type": int | None,
        "help": "number of CPU threads (default: torch's; with a trained model: one per processor that other programs "
        "leave free)",
    },
    "model": {
        "type": str | None,
        "help": "model: a folder or its .zip or .tar.gz, with config.json + safetensors, options.json + HDF5 (also "
        "*_options.json + *_weights.hdf5), a checkpoint of bilm-tf, or ELMoForManyLangs' files; a run's save_dir (if "
        "unfinished: its newest checkpoint); AllenNLP's model.tar.gz; or mini, which comes with elmo_fast",
    },
    "options_file": {"type": str | None, "help": "instead of --model: options.json, with --weight_file"},
    "weight_file": {
        "type": str | None,
        "help": "HDF5 weights, a bilm-tf checkpoint's .index, or AllenNLP's model.tar.gz; with --options_file",
    },
    "prefix": {"type": str | None, "help": PREFIX},
    "softmax_file": {
        "type": str | None,
        "help": "HDF5 file with softmax/W and softmax/b, if --weight_file has none",
    },
    "precision": {
        "type": InferencePrecision,
        "default": "float32",
        "help": "rounds the operands of matrix products, for speed (elmo-fast info prints the speeds); float32 rounds "
        "nothing",
    },
    "train_prefix": {
        "type": str,
        "required": True,
        "help": "text to train on: a file (plain, .gz or .zst), a folder of files, or a glob in quotes: 'news/*.gz'",
    },
    "tokenizer": {
        "type": Tokenizer | None,
        "metavar": "{" + ",".join(TOKENIZERS) + "}",
        "help": "tokenizer of the text: at white space; words and punctuation; spaCy's for English; or for logs, with "
        "<NUM>, <HEX>, <ADDRESS>, <PATH> and <TIME> for what they stand for (default: the model's, else whitespace)",
    },
    "processes": {"type": int | None, "help": "number of processes that read the text (default: one per core)"},
    "min_count": {"type": int, "default": MIN_COUNT, "help": "leave out words that occur less often"},
    "batch_size": {
        "type": int | None,
        "help": "maximum number of sentences per batch (default: 64; on a GPU without carried state 1,024, of at most "
        "16,384 tokens together)",
    },
    "max_tokens": {"type": int | None, "help": "maximum number of tokens per batch, including padding"},
    "topn": {"type": int, "default": 10, "help": "number of results"},
    "title": {"type": str, "default": "", "help": "title of the picture"},
    "file_friendly_logging": {"action": "store_true", "help": "print progress as lines instead of a bar"},
}
# Fields of a configuration that every command has as an option.
COMMON = ("seed", "threads")
UNKNOWN = "unrecognized arguments: "
REQUIRED = "the following arguments are required: "
# Arguments of functions that commands call by another name.
ARGUMENTS = {"file_format": "format", "output_format": "layers", "part_sentences": "part_lines"}
QUOTES = "\"'"
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser, whose errors are one line instead of the usage of all options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)
        self._writes: dict[str, tuple[str, ...]] = {}
        self.old_names: dict[str, str] = {}
        self.spellings: dict[str, tuple[str, str]] = {}
        self.typed: set[str] = set()
        self._alternatives: list[tuple[frozenset[str], ...]] = []
        self.given_in_file: dict[str, tuple[str, Given]] = {}

    def shared(self, *names: str, **changed: Any) -> None:
        """Adds options of SHARED; changed: what is different here."""
        for name in names:
            self.add_argument(f"--{name}", **{**SHARED[name], **changed})
        if {"model", "options_file"}.issubset(names):
            self.alternatives(["model"], ["options_file", "weight_file", "softmax_file"])

    def option(self, name: str, kind: Any, help: str, default: Any = None, **more: Any) -> None:
        """Adds --NAME; left out it is the default, or None, unless it is required."""
        if default is None and not more.get("required"):
            if typing.get_origin(kind) is typing.Literal:
                more.setdefault("metavar", "{" + ",".join(typing.get_args(kind)) + "}")
            kind = kind | None
        self.add_argument(f"--{name}", type=kind, default=default, help=help, **more)

    def flag(self, name: str, help: str) -> None:
        """Adds --NAME, which takes no value."""
        self.add_argument(f"--{name}", action="store_true", help=help)

    def output(self, name: str, help: str, default: Any = None, **more: Any) -> None:
        """Adds --NAME, which names a file to write."""
        self.option(name, str, help, default, **more)
        self.writes(name)

    def fields(self, kind: Any, title: str | None = None, other_names: Mapping[str, list[str]] | None = None) -> None:
        """Adds every field of a configuration, a dataclass of `described` fields, as an option.

        title: of the group of options that they form; other_names: field -> more flags for it
        """
        group = self if title is None else self.add_argument_group(title, (kind.__doc__ or "").strip())
        for field in dataclasses.fields(kind):
            if field.name in COMMON:
                continue
            flags = [f"--{field.name}", *(other_names or {}).get(field.name, [])]
            default: Any = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            options = {"type": field.type, "default": default, "help": field.metadata["help"]}
            if isinstance(default, tuple):
                options |= {"type": typing.get_args(field.type)[0], "default": list(default), "nargs": "*"}
            group.add_argument(*flags, dest=field.name, **options)

    def renamed(self, old: str, option: str) -> None:
        """Accepts `old` for `option`, as a flag and in configuration files; --help does not list it."""
        self.old_names[old] = option

    def spelled(self, option: str, *values: str) -> None:
        """Accepts the flag --VALUE for --OPTION VALUE, and `VALUE: true` in configuration files."""
        self.spellings |= {value: (option, value) for value in values}

    def alternatives(self, *sides: Iterable[str]) -> None:
        """Declares options that exclude each other: the sides, each of which may be several options.

        What is typed then replaces the other sides of a configuration file. The command itself refuses two sides.
        """
        self._alternatives.append(tuple(map(frozenset, sides)))

    def excluded_by(self, names: Iterable[str]) -> set[str]:
        """The options that cannot stand beside these."""
        present, known = set(names), {action.dest for action in self._actions}
        return known & {
            option
            for sides in self._alternatives
            for side in sides
            for other in sides
            if other is not side and present & other and not present & side
            for option in side
        }

    def writes(self, option: str, *files: str) -> None:
        """Declares that `option` names a file to write, or a folder for these `files`."""
        self._writes[option] = files

    def parse_args(self, args: Any = None, *more: Any, **kwargs: Any) -> Any:
        """The options; ElmoFastError if an output would replace an input, or if flags exclude each other."""
        words = self._newest(args or [])
        arguments = super().parse_args(words, *more, **kwargs)
        check_outputs(arguments, self._writes)
        return arguments

    def _newest(self, args: Sequence[str]) -> list[str]:
        """The words with the present names of options; notes which options are typed."""
        words, spelled = list(args), dict[str, str]()
        for place, word in enumerate(words[: words.index("--") if "--" in words else None]):
            name, equals, value = word.partition("=")
            name = f"--{self.old_names.get(name[2:], name[2:])}" if name.startswith("--") else name
            words[place] = name + equals + value
            if name[2:] in self.spellings and not equals:
                words[place] = "--{}={}".format(*self.spellings[name[2:]])
            action = self._option_string_actions.get(words[place].partition("=")[0])
            if action is None:
                continue
            self.typed.add(action.dest)
            if action.dest in dict(self.spellings.values()):
                before = spelled.setdefault(action.dest, word)
                if before != word:
                    raise ElmoFastError(f"{before} and {word} exclude each other; give one of them")
        return words

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own swallows write errors: a closed pipe or a full disk would look like a success."""
        if message:
            (file or sys.stderr).write(message)

    def as_typed(self, sentence: str) -> str:
        """A sentence of the library, which calls an argument `min_count` or `format=npz`, with the command's options.

        Names with an underscore are options wherever they stand by themselves; a name that is also a word only before
        `=`, "must" and "needs".
        """
        known = {name[2:]: name for name in self._option_string_actions if name.startswith("--")}
        for argument, option in ARGUMENTS.items():
            if option in known:
                known.setdefault(argument, known[option])

        def value(found: re.Match[str]) -> str:
            return f"{known[found[1]]} {found[2].strip(QUOTES)}" if found[1] in known else found[0]

        def name(found: re.Match[str]) -> str:
            return known.get(found[0], found[0])

        sentence = re.sub(r"""(?<![\w./'"`=-])([a-z]\w*)=("[^"\s]*"|[\w./:-]*[\w/])""", value, sentence)
        sentence = re.sub(r"""(?<![\w./'"`=-])[a-z]+_\w+(?![\w/'"`=(:-]|\.\w)""", name, sentence)
        return re.sub(r"""(?:^|(?<=: )|(?<=; ))[a-z]+(?= must | needs )""", name, sentence)

    def told(self, error: Exception, arguments: Any) -> str:
        """The error as a sentence, after the name of the one argument whose value it names or begins with, if any."""
        sentence = self.as_typed(sentence_of(error) if isinstance(error, OSError) else str(error))
        file = getattr(error, "filename", None)
        about = [
            f"--{name}" if f"--{name}" in self._option_string_actions else name
            for name, value in vars(arguments).items()
            for each in (value if isinstance(value, list) else [value])
            if each and isinstance(each, str) and (each == file or sentence.startswith(f"{each}: "))
        ]
        return f"{about[0]}{':' if file else ''} {sentence}" if len(about) == 1 else sentence

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints the error and how to list the options, and exits with status 2."""
        if not self.exit_on_error:
            super().error(message, ex)
        options = list(self._option_string_actions)
        told = f"{self._where(message)}{_plain(message, options)}{_meant(message, options)}"
        print(f"{self.prog}: error: {told}", file=sys.stderr)
        print(f"{self.prog} --help lists the options", file=sys.stderr)
        self.exit(2)

    def _where(self, message: str) -> str:
        """'--config run.yaml, line 3: ' if the message is about a value from a file."""
        path, given = self.given_in_file.get(_key_of(message), (None, None))
        told = given is not None and message.rstrip().endswith(f"Got value: {given.value}")
        return f"--config {path}, line {given.line}: " if given is not None and told else ""


def _flag(name: str, options: list[str]) -> str:
    return f"--{name}" if f"--{name}" in options else name


def _key_of(message: str) -> str:
    found = re.match(r'Parser key "(?:\w+\.)*(\w+)"', message)
    return found[1] if found else ""


def _plain(message: str, options: list[str]) -> str:
    """jsonargparse's message in one line, in the words that the user typed: --to, and not 'Parser key "to"'."""
    line = " ".join(message.split())
    if line.startswith(REQUIRED):
        return REQUIRED + ", ".join(_flag(name, options) for name in line.removeprefix(REQUIRED).split(", "))
    if found := re.match(r'Parser key "(?:\w+\.)*(\w+)": ', line):
        line = f"{_flag(found[1], options)}: {line[found.end() :]}"
    line = re.sub(
        r"Does not validate against any of the Union subtypes Subtypes: \[.*?\] Errors: - (.*?)(?: - Expected a <class "
        r"'NoneType'>)? Given value type: .*? Given value: ",
        r"\1. Got value: ",
        line,
    )
    line = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"wanted one of \1", line)
    line = re.sub(r"Expected a <class '(\w+)'>", lambda found: f"wanted {KINDS.get(found[1], found[1])}", line)
    return line.replace(". Got value: ", "; got ")


def _meant(message: str, options: list[str]) -> str:
    """'; did you mean --dev_path?' if the message names an unknown option that begins a known one, or nearly is one."""
    if not message.startswith(UNKNOWN):
        return ""
    unknown = [word[2:].partition("=")[0] for word in message.removeprefix(UNKNOWN).split() if word.startswith("--")]
    known = [option[2:] for option in options if option.startswith("--")]
    begun = {word: [each for each in known if each.startswith(word)] for word in unknown}
    close = [
        f"--{each}" for word in unknown for each in (begun[word] or difflib.get_close_matches(word, known, 1, 0.75))[:1]
    ]
    return f"; did you mean {' and '.join(close)}?" if close else ""


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """jsonargparse's own without Python's types, and without defaults that say nothing (null, false, an empty list)."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told = action.help or ""
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            return told
        if action.required:
            return f"{told} (required)"
        silent = action.default in ("", []) or any(action.default is each for each in (None, False, argparse.SUPPRESS))
        return told if silent or "(default: " in told else f"{told} (default: %(default)s)"


# The options of all commands that name inputs: a text (a file, a folder or a glob), or a file or folder.
TEXTS = ("train_prefix", "test_prefix")
READ = (
    "input_file", "corpus", "text", "word_file", "vocab_file", "vectors", "analogies", "pairs", "path", "config",
    "options_file", "weight_file", "softmax_file", "model", "save_dir", "source", "run", "also",
)  # fmt: skip
# Outputs that are folders, which are created.
MADE = ("out_dir",)
# What `embed` reads of a folder that is its input: Parquet files, a dataset that was saved.
TABLES = ("*.parquet", "*.arrow")
# What commands read from the folder of a model, a run or a task, besides the model.
KEPT = ("config.json", "metrics.jsonl", "vocab.txt", "vocab.txt.gz", "labels.json", "words.json", "results.json")


def check_outputs(arguments: Any, writes: Mapping[str, tuple[str, ...]]) -> None:
    """Raises ElmoFastError if an output is a file that is read, is another output, or is in a missing folder.

    writes: option -> the names of the files if it names their folder, () if it names the file itself
    """
    for name in (name for name, files in writes.items() if not files and name not in MADE):
        for value in _values(arguments, name):
            folder = os.path.dirname(value) or "."
            if not os.path.isdir(folder):
                raise ElmoFastError(f"{name} {value!r}: there is no folder {folder!r}; create it first")
    outputs = [(name, file) for name in writes for file in _written(arguments, name, writes[name])]
    inputs = [(name, file) for name in (*TEXTS, *READ) if name not in writes for file in _read(arguments, name)]
    for (name, file), (other, path) in [*itertools.product(outputs, inputs), *itertools.combinations(outputs, 2)]:
        if replaces(file, path):
            what = "also written" if other in writes else "read"
            where = "holds" if os.path.isdir(file) else "is the same file as"
            raise ElmoFastError(f"{name} {file!r} {where} {other} {path!r}, which is {what}; choose another output")


def _values(arguments: Any, name: str) -> list[str]:
    value = getattr(arguments, name, None)
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each]


def _written(arguments: Any, name: str, files: tuple[str, ...]) -> list[str]:
    return [path for value in _values(arguments, name) for path in ([os.path.join(value, f) for f in files] or [value])]


def _read(arguments: Any, name: str) -> Iterator[str]:
    from elmo_fast.text import files_matching

    for value in _values(arguments, name):
        if name in TEXTS:
            with contextlib.suppress(ElmoFastError):  # a missing file is reported where it is read
                yield from files_matching(value)
        elif os.path.isdir(value):
            yield from _files_of(value)
        else:
            yield value


def _files_of(folder: str) -> Iterator[str]:
    from elmo_fast.checkpoints import model_files

    with contextlib.suppress(CheckpointError):  # as above
        yield from map(os.fspath, model_files(folder))
    yield from (path for name in KEPT if os.path.isfile(path := os.path.join(folder, name)))
    yield from (path for name in TABLES for path in glob.glob(os.path.join(glob.escape(folder), name)))
