"""The commands' parser: jsonargparse's, with the options that several commands have, and a check of what is written."""

import argparse
import ast
import contextlib
import dataclasses
import glob
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, NoReturn

import jsonargparse
import yaml

from elmo_fast.errors import CheckpointError, ElmoFastError, did_you_mean, printable, sentence_of
from elmo_fast.fields import MIN_COUNT, TYPE_WORDS, docstrings
from elmo_fast.files import replaces
from elmo_fast.op_choices import Backend, FormatIn, InferencePrecision, Tokenizer

# Of the help of several options.
TEXT = "text: one sentence per line, tokens separated by spaces; plain, .gz or .zst; - is the standard input"


# What a command does with "-" in place of a file: refuse it, stream it, or read or write a file that is a copy.
StandardStream = Literal["refused", "streamed", "copied"]


class Reads(NamedTuple):
    """How a command reads the files that an option names.

    standard_input: what "-" stands for: nothing (refused), the stream itself, which the command reads once, or a copy
    of it; pattern: whether the value may be a glob, or a folder of text.
    """

    standard_input: StandardStream = "refused"
    pattern: bool = False


class Shared(NamedTuple):
    """An option that several commands have: type (None: a flag), help, default, and how it is read if it is a file."""

    kind: Any
    help: str
    default: Any = None
    reads: Reads | None = None


SHARED: dict[str, Shared] = {
    "seed": Shared(int, "random seed", 0),
    "device": Shared(str, "device: cpu, cuda, cuda:1, or auto, which is cuda if torch sees a GPU, else cpu", "auto"),
    "threads": Shared(
        int,
        "number of CPU threads (default: torch's; with a trained model: one per processor that other programs leave "
        "free)",
    ),
    "model": Shared(
        str,
        "model: a folder or its .zip or .tar.gz, with config.json + safetensors, options.json + HDF5 (also "
        "*_options.json + *_weights.hdf5), a checkpoint of bilm-tf, or ELMoForManyLangs' files; a run's save_dir (if "
        "unfinished: its newest checkpoint); AllenNLP's model.tar.gz; or a name that `elmo-fast models` lists, such "
        "as mini",
        reads=Reads(),
    ),
    "options_file": Shared(str, "instead of --model: options.json, with --weight_file", reads=Reads()),
    "weight_file": Shared(
        str,
        "HDF5 weights, a bilm-tf checkpoint's .index, or AllenNLP's model.tar.gz; with --options_file",
        reads=Reads(),
    ),
    "prefix": Shared(
        str,
        "which ELMo of an AllenNLP model that contains several: prefix of its tensor names, as listed in the error "
        "message",
    ),
    "backend": Shared(
        Backend,
        "backend of the ops: auto, native (C++), cuda, triton or reference (plain torch); ops that do not have it use "
        "auto",
        "auto",
    ),
    "softmax_file": Shared(str, "HDF5 file with softmax/W and softmax/b, if --weight_file has none", reads=Reads()),
    "precision": Shared(
        InferencePrecision,
        "rounds the operands of matrix products, for speed (see elmo-fast info); float32 rounds nothing",
        "float32",
    ),
    "train_prefix": Shared(
        str,
        "text to train on: a file (plain, .gz or .zst), a folder of files, or a glob in quotes: 'news/*.gz'",
        reads=Reads("streamed", pattern=True),
    ),
    "tokenizer": Shared(
        Tokenizer,
        "tokenizer of the text: at white space; words and punctuation; spaCy's for English; or for logs, replacing "
        "numbers, hex ids, addresses, paths and times by <NUM> ... (default: the model's, else whitespace; raw text "
        "needs basic)",
    ),
    "format_in": Shared(
        FormatIn,
        "format of the text; fasta: residues are tokens, and the first word of a '>' line names the sequence (in hdf5, "
        "the dataset); parquet: a file, or a folder of .parquet files; dataset: a saved folder of Hugging Face's "
        "datasets, or a name on the hub; csv and tsv: the first line names the columns; jsonl: a JSON object per line "
        "(default: by the ending, parquet or dataset if it is such a folder, else text)",
    ),
    "column": Shared(
        str,
        "of a table (all formats but text and fasta): the column with the sentences, strings or lists of tokens",
        "text",
    ),
    "split": Shared(str, "with dataset: which split, if it has several", "train"),
    "processes": Shared(int, "number of processes that read the text (default: one per core)"),
    "ray": Shared(
        str,
        "address HOST:PORT of a Ray cluster whose machines share the work and a disk, or auto: this machine's; tasks "
        "of a machine that is lost run again on others",
    ),
    "min_count": Shared(int, "leave out words that occur less often", MIN_COUNT),
    "batch_size": Shared(
        int,
        "maximum number of sentences per batch (default: 64; on a GPU without carried state 1,024)",
    ),
    "max_tokens": Shared(
        int,
        "maximum number of tokens per batch, including padding (default: 16,384; with carried state any number)",
    ),
    "topn": Shared(int, "number of results", 10),
    "title": Shared(str, "title of the picture", ""),
    "file_friendly_logging": Shared(None, "print progress as lines also on a terminal, instead of a bar"),
}
# Names of SHARED that go together: for what computes; a pretrained model, named in one of two ways, and one of several
# in an archive; that model with its precision.
COMPUTING = ("seed", "device", "threads")
MODEL_NAMES = ("model", "options_file", "weight_file", "prefix")
MODEL_OPTIONS = (*MODEL_NAMES, "precision")
# How a text is read that may be a table.
READING = ("tokenizer", "format_in", "column", "split")


# `elmo-fast --print_completion shtab-bash`, by shtab.
jsonargparse.set_parsing_settings(add_print_completion_argument=True)


MOST_CONFIG = 1 << 20  # characters of a --config, which may be a pipe


class ConfigFile(jsonargparse.ActionConfigFile):
    """jsonargparse's --config, which also reads TOML and the parser's presets, and whose errors name the file."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path, presets = values, parser.presets
        if presets and not os.path.exists(path):
            if path not in presets:
                known = ", ".join(presets)
                hint = did_you_mean(path, presets)
                raise ElmoFastError(f"--config {path}: neither a file nor a preset; presets: {known}{hint}")
            path = presets[path]
        try:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read(MOST_CONFIG + 1)
            if len(text) > MOST_CONFIG:
                raise ValueError(f"more than {MOST_CONFIG:,} characters, which is no file of options")
            if path.endswith(".toml"):
                import tomllib

                text = json.dumps(tomllib.loads(text), default=str)
            if not isinstance(jsonargparse.get_loader("yaml")(text), dict):
                raise ValueError("it must hold options, each as in `seed: 1`")
            super().__call__(parser, cfg, text, option_string)  # not the path: a pipe can be read only once
            cfg[self.dest][-1] = path
        except OSError as error:
            raise ElmoFastError(f"--config: {sentence_of(error)}") from error
        except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise ElmoFastError(f"--config {path}: {parser.in_plain_words(str(error))[1]}") from error


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser with shorter ways to add options, whose errors are one line."""

    def __init__(self, description: str | None = None, **more: Any) -> None:
        super().__init__(description=description, allow_abbrev=False, formatter_class=HelpFormatter, **more)
        self._reads: dict[str, Reads] = {}
        self._writes: dict[str, tuple[str, ...]] = {}
        self._standard_outputs: dict[str, StandardStream] = {}  # for outputs that may be "-"
        self._stores = False  # whether a run stores these options, and reads its inputs again when it resumes
        self.presets: dict[str, str] = {}  # what --config also takes: name -> file

    def common(self) -> None:
        """Add what every command has: --config, --print_config and -q."""
        configs = "YAML, JSON or TOML file of these options; options on the command line win"
        self.add_argument("--config", action=ConfigFile, help=configs)
        self.reads("config")
        self._option_string_actions["--print_config"].help = "print the options in force, as YAML, and exit"
        self.add_argument("-q", "--quiet", action="store_true", help="print only warnings and errors")

    def shared(self, *names: str, **changed: Any) -> None:
        """Add options of SHARED; changed: what is different here, as `option` takes it."""
        for name in names:
            *option, reads = SHARED[name]
            self.option(name, **{**dict(zip(("kind", "help", "default"), option, strict=True)), **changed})
            if reads is not None:
                self._reads[name] = reads

    def option(self, name: str, kind: Any, help: str, default: Any = None, **more: Any) -> None:
        """Add --NAME; left out it is the default, or None, unless it is required. A kind of None is a flag."""
        how = {"action": "store_true"} if kind is None else {"type": kind, "default": default}
        self.add_argument(f"--{name}", help=help, **how, **more)

    def output(
        self, name: str, help: str, default: Any = None, *, standard_output: StandardStream = "refused", **more: Any
    ) -> None:
        """Add --NAME, which names a file to write; standard_output: as in `writes`."""
        self.option(name, str, help, default, **more)
        self.writes(name, standard_output=standard_output)

    def input(
        self, name: str, help: str, *, standard_input: StandardStream = "refused", pattern: bool = False, **more: Any
    ) -> None:
        """Add --NAME, which names a file to read; standard_input, pattern: as of `Reads`."""
        self.option(name, str, help, **more)
        self._reads[name] = Reads(standard_input, pattern)

    def fields(
        self,
        kind: Any,
        title: str | None = None,
        other_names: Mapping[str, list[str]] | None = None,
        help: Mapping[str, str] | None = None,
    ) -> None:
        """Add every field of a configuration, a dataclass, as an option; a run stores them, and what they name.

        Fields that are options already stay as they are. title: of the group of options that they form; other_names:
        field -> more flags for it; help: of each field; None: its docstring or, without one, that of SHARED
        """
        self._stores, help = True, help or docstrings(kind)
        group = self if title is None else self.add_argument_group(title, (kind.__doc__ or "").strip())
        for field in dataclasses.fields(kind):
            if f"--{field.name}" in self._option_string_actions:
                continue
            flags = [f"--{field.name}", *(other_names or {}).get(field.name, [])]
            default: Any = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            sentence = help[field.name] if field.name in help else SHARED[field.name].help
            options = {"type": _without_none(field.type), "default": default, "help": sentence}
            if isinstance(default, tuple):
                options |= {"type": typing.get_args(field.type)[0], "default": list(default), "nargs": "*"}
            group.add_argument(*flags, dest=field.name, **options)

    def reads(self, *options: str, standard_input: StandardStream = "refused") -> None:
        """Declare that these options name files to read, or folders of them; standard_input: as of `Reads`."""
        self._reads |= dict.fromkeys(options, Reads(standard_input))

    def writes(self, option: str, *files: str, standard_output: StandardStream = "refused") -> None:
        """Declare that `option` names a file to write, or a folder for these `files`.

        standard_output: what "-" stands for: nothing (refused), the stream, to which the command writes, or a file of
        text, which is printed when it is complete. The command prints nothing else.
        """
        self._writes[option] = files
        self._standard_outputs[option] = standard_output

    def _is_path(self, name: str) -> bool:
        return name in (*self._reads, *self._writes) or name.endswith(("_dir", "_file", "_path", "_prefix"))

    @contextlib.contextmanager
    def standard_streams(self, arguments: Any) -> Iterator[None]:
        """Put files in the place of "-": a copy of the standard input, and one that is printed when the block ends.

        What is streamed stays "-". Raises ElmoFastError where "-" cannot be served.
        """
        names = [name for name in vars(arguments) if self._is_path(name) and "-" in _values(arguments, name)]
        outputs = [name for name in names if name in self._writes]
        inputs = [name for name in names if name not in self._writes]
        for name in outputs:
            if self._standard_outputs[name] == "refused":
                raise ElmoFastError(f"{self.named(name)} cannot be the standard output (-): name a file")
        for name in inputs:
            if self._stores:
                why = "the standard input (-), as the run reads it again when it resumes"
                raise ElmoFastError(f"{self.named(name)} cannot be {why}: name a file")
            if self._reads.get(name, Reads()).standard_input == "refused":
                raise ElmoFastError(f"{self.named(name)} cannot be the standard input (-): name a file or folder")
        if len(inputs) > 1:
            listed = " and ".join(map(self.named, inputs))
            raise ElmoFastError(f"{listed} cannot both be the standard input (-): name a file for one of them")
        with contextlib.ExitStack() as stack:
            for name in (name for name in inputs if self._reads[name].standard_input == "copied"):
                from elmo_fast.text import rereadable

                copy, value = stack.enter_context(rereadable("-")), getattr(arguments, name)
                setattr(arguments, name, [copy] if isinstance(value, list) else copy)
            printed = [name for name in outputs if self._standard_outputs[name] == "copied"]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-fast-")) if printed else ""
            for name in printed:
                setattr(arguments, name, os.path.join(folder, f"standard-output-{name}"))
            yield
            for name in printed:
                with open(getattr(arguments, name), encoding="utf-8", newline="") as file:
                    shutil.copyfileobj(file, sys.stdout)

    def check_outputs(self, arguments: Any) -> None:
        """Raise ElmoFastError if an output would replace an input or another output, or is in a missing folder."""
        for name in (name for name, files in self._writes.items() if not files and name != "out_dir"):
            for value in _values(arguments, name):
                folder = os.path.dirname(value) or "."
                if not os.path.isdir(folder):
                    raise ElmoFastError(f"{name} {value!r}: there is no folder {folder!r}; create it first")
        outputs = [
            (name, os.path.join(value, file) if file else value)
            for name, files in self._writes.items()
            for value in _values(arguments, name)
            if value != "-"
            for file in files or [""]
        ]
        inputs = [
            (name, file)
            for name, reads in self._reads.items()
            if name not in self._writes
            for file in _files_read(_values(arguments, name), reads.pattern)
        ]
        for (name, file), (other, path) in [*itertools.product(outputs, inputs), *itertools.combinations(outputs, 2)]:
            if replaces(file, path):
                what = "also written" if other in self._writes else "read"
                where = "holds" if os.path.isdir(file) else "is the same file as"
                raise ElmoFastError(f"{name} {file!r} {where} {other} {path!r}, which is {what}; choose another output")

    def about(self, error: Exception, arguments: Any) -> str:
        """Return the error as a sentence, after the name of the one option whose value it names or begins with."""
        sentence = sentence_of(error) if isinstance(error, OSError) else self.in_options(str(error))
        file = getattr(error, "filename", None)
        options = [
            f"--{name}" if f"--{name}" in self._option_string_actions else name
            for name in vars(arguments)
            for each in _values(arguments, name)
            if each == file or sentence.startswith(f"{printable(each)}: ")
        ]
        return f"{options[0]}{':' if file else ''} {sentence}" if len(options) == 1 else sentence

    def in_options(self, sentence: str) -> str:
        """Return a sentence about arguments of a function with options: "--column NAME" for "column=NAME"."""
        return re.sub(
            r"(?<![\w'\"(.-])(\w+)=(?=\w)",
            lambda match: f"--{match[1]} " if f"--{match[1]}" in self._option_string_actions else match[0],
            sentence,
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write the message; argparse's own swallows errors: a closed pipe or a full disk would look like success."""
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error in one line, and how to list the options; exit with status 2."""
        parser, sentence = (getattr(ex, "subcommand_parser", None) or self).in_plain_words(message)
        print(f"{parser.prog}: error: {printable(sentence)}", file=sys.stderr)
        print(f"{parser.prog} --help lists the options", file=sys.stderr)
        self.exit(2)

    def in_plain_words(self, message: str) -> tuple["Parser", str]:
        """Return an error of jsonargparse or argparse in the words of the help, and the parser that it is about."""
        message = " ".join(message.split())
        for pattern, explain in _EXPLAINED:
            if (match := re.fullmatch(pattern, message)) is not None:
                return explain(self, *match.groups())
        return self, message

    def named(self, key: str) -> str:
        """Return what a user writes for an argument: --NAME, or the name that the help gives a positional one."""
        for action in self._actions:
            if action.dest == key:
                return action.option_strings[0] if action.option_strings else str(action.metavar or key)
        return key

    def below(self, key: str) -> tuple["Parser", str]:
        """Return the parser of the command with which a dotted key begins, and the rest of the key."""
        parser, rest = self, key
        while parser._subcommands_action is not None and "." in rest:
            name, _, rest = rest.partition(".")
            parser = parser._subcommands_action.choices[name]
        return parser, rest


def _missing(parser: Parser, keys: str) -> tuple[Parser, str]:
    pairs = [parser.below(key) for key in keys.split(", ")]
    names = [leaf.named(key) for leaf, key in pairs]
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return pairs[0][0], f"{listed} {'are' if len(names) > 1 else 'is'} missing"


def _no_command(parser: Parser, key: str, choices: str) -> tuple[Parser, str]:
    leaf, _ = parser.below(key)
    return leaf, f"a command is missing: {', '.join(choices.split(','))}"


def _unknown_command(parser: Parser, name: str, choices: str) -> tuple[Parser, str]:
    known = re.findall(r"'([^']*)'", choices)
    return parser, f"unknown command {name!r}{did_you_mean(name, known) or '; commands: ' + ', '.join(known)}"


def _unknown(parser: Parser, words: str) -> tuple[Parser, str]:
    options = [word for word in words.split() if word.startswith("--")]
    if not options:
        return parser, f"unexpected argument {words!r}"
    name = options[0].partition("=")[0]
    return parser, f"unknown option {name}{did_you_mean(name, parser._option_string_actions)}"


def _unknown_key(parser: Parser, name: str) -> tuple[Parser, str]:
    known = [action.dest for action in parser._actions]
    return parser, f"unknown option {name}{did_you_mean(name, known)}"


def _other_type(parser: Parser, key: str, kind: str, value: str) -> tuple[Parser, str]:
    words = {each.__name__: text for each, text in TYPE_WORDS.items()} | {"list": "a list, such as [1, 2]"}
    return parser, f"{parser.named(key)} must be {words.get(kind, kind)}; got {value!r}"


def _no_choice(parser: Parser, key: str, choices: str, value: str) -> tuple[Parser, str]:
    known = ast.literal_eval(choices)
    return parser, f"{parser.named(key)} must be one of {', '.join(known)}; got {value!r}{did_you_mean(value, known)}"


# Messages of jsonargparse and argparse, and what puts each into plain words.
_EXPLAINED: list[tuple[str, Callable[..., tuple[Parser, str]]]] = [
    (r"the following arguments are required: (.*)", _missing),
    (r'expected "([^"]*)" to be one of \{(.*)\}, but it was not provided\.', _no_command),
    (r"argument (?:COMMAND|KIND): invalid choice: '(.*)' \(choose from (.*)\)", _unknown_command),
    (r"unrecognized arguments: (.*)", _unknown),
    (r"Subcommand '[^']*' does not accept option '(.*)'", _unknown_key),
    (r'Parser key "([^"]*)": Expected a <class \'(\w+)\'>\. Got value: (.*)', _other_type),
    (r'Parser key "([^"]*)": Expected a typing\.Literal(\[[^\]]+\])\. Got value: (.*)', _no_choice),
    (
        r'Parser key "([^"]*)":.* Subtypes: \[typing\.Literal(\[[^\]]+\]), <class \'NoneType\'>\] .*Given value: (.*)',
        _no_choice,
    ),
    (
        r"argument (\S+): expected (?:one|at least one) argument",
        lambda parser, name: (parser, f"{name} needs a value"),
    ),
]


def _without_none(kind: Any) -> Any:
    """`kind` without None, which jsonargparse takes for every option whose default is None: its errors are shorter."""
    kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
    return kinds[0] if isinstance(kind, types.UnionType) and len(kinds) == 1 else kind


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """jsonargparse's own without Python's types, and without defaults that say nothing (null, false, an empty list)."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if not action.option_strings or isinstance(action, argparse._HelpAction | argparse._StoreConstAction):
            return text
        if action.required:
            return f"{text} (required)"
        silent = action.default in ("", []) or any(action.default is each for each in (None, False, argparse.SUPPRESS))
        return text if silent or "(default: " in text else f"{text} (default: %(default)s)"


# What commands read from the folder of a model, a run or a task besides the model, and `embed` from one of tables.
KEPT = (
    "config.json", "metrics.jsonl", "vocab.txt", "vocab.txt.gz", "labels.json", "words.json", "results.json",
    "*.parquet", "*.arrow",
)  # fmt: skip


def _values(arguments: Any, name: str) -> list[str]:
    value = getattr(arguments, name, None)
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each]


def _files_read(values: list[str], pattern: bool) -> Iterator[str]:
    for value in values:
        with contextlib.suppress(ElmoFastError, CheckpointError):  # a missing file is reported where it is read
            if pattern:
                from elmo_fast.text import files_matching

                yield from files_matching(value)
            elif os.path.isdir(value):
                from elmo_fast.checkpoints import model_files

                yield from (path for each in KEPT for path in glob.glob(os.path.join(glob.escape(value), each)))
                yield from map(os.fspath, model_files(value))
            else:
                yield value
