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
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jsonargparse
import yaml

from elmo_fast.errors import CheckpointError, ElmoFastError, did_you_mean, sentence_of
from elmo_fast.fields import MIN_COUNT, PREFIX
from elmo_fast.files import replaces
from elmo_fast.op_choices import InferencePrecision, Tokenizer

# The options that several commands have: name -> type (None: a flag), help, and a default if there is one.
SHARED: dict[str, tuple[Any, ...]] = {
    "seed": (int, "random seed", 0),
    "device": (str, "device: cpu, cuda, cuda:1, or auto, which is cuda if torch sees a GPU, else cpu", "auto"),
    "threads": (
        int,
        "number of CPU threads (default: torch's; with a trained model: one per processor that other programs leave "
        "free)",
    ),
    "model": (
        str,
        "model: a folder or its .zip or .tar.gz, with config.json + safetensors, options.json + HDF5 (also "
        "*_options.json + *_weights.hdf5), a checkpoint of bilm-tf, or ELMoForManyLangs' files; a run's save_dir (if "
        "unfinished: its newest checkpoint); AllenNLP's model.tar.gz; or a name that `elmo-fast models` lists, such "
        "as mini",
    ),
    "options_file": (str, "instead of --model: options.json, with --weight_file"),
    "weight_file": (
        str,
        "HDF5 weights, a bilm-tf checkpoint's .index, or AllenNLP's model.tar.gz; with --options_file",
    ),
    "prefix": (str, PREFIX),
    "softmax_file": (str, "HDF5 file with softmax/W and softmax/b, if --weight_file has none"),
    "precision": (
        InferencePrecision,
        "rounds the operands of matrix products, for speed (see elmo-fast info); float32 rounds nothing",
        "float32",
    ),
    "train_prefix": (
        str,
        "text to train on: a file (plain, .gz or .zst), a folder of files, or a glob in quotes: 'news/*.gz'",
    ),
    "tokenizer": (
        Tokenizer,
        "tokenizer of the text: at white space; words and punctuation; spaCy's for English; or for logs, with <NUM>, "
        "<HEX>, <ADDRESS>, <PATH> and <TIME> for what they stand for (default: the model's, else whitespace)",
    ),
    "processes": (int, "number of processes that read the text (default: one per core)"),
    "ray": (
        str,
        "address HOST:PORT of a Ray cluster whose machines share the work and a disk, or auto: this machine's; tasks "
        "of a machine that is lost run again on others",
    ),
    "min_count": (int, "leave out words that occur less often", MIN_COUNT),
    "batch_size": (
        int,
        "maximum number of sentences per batch (default: 64; on a GPU without carried state 1,024, of at most 16,384 "
        "tokens together)",
    ),
    "max_tokens": (int, "maximum number of tokens per batch, including padding"),
    "topn": (int, "number of results", 10),
    "title": (str, "title of the picture", ""),
    "file_friendly_logging": (None, "print progress as lines also on a terminal, instead of a bar"),
}
# Names of SHARED that go together: for what computes; a pretrained model, named in one of two ways, and one of several
# in an archive; that model with its precision.
COMPUTING = ("seed", "device", "threads")
MODEL_NAMES = ("model", "options_file", "weight_file", "prefix")
MODEL_OPTIONS = (*MODEL_NAMES, "precision")


# `elmo-fast --print_completion shtab-bash`, by shtab.
jsonargparse.set_parsing_settings(add_print_completion_argument=True)


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
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if path.endswith(".toml"):
                import tomllib

                text = json.dumps(tomllib.loads(text), default=str)
            if not isinstance(options := jsonargparse.get_loader("yaml")(text), dict):
                raise ValueError("it must hold options, each as in `seed: 1`")
            content = json.dumps(options, default=str) if path.endswith(".toml") else path
            super().__call__(parser, cfg, content, option_string)
        except OSError as error:
            raise ElmoFastError(f"--config: {sentence_of(error)}") from error
        except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise ElmoFastError(f"--config {path}: {error}") from error


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser with shorter ways to add options, whose errors are one line."""

    def __init__(self, description: str | None = None, **more: Any) -> None:
        super().__init__(description=description, allow_abbrev=False, formatter_class=HelpFormatter, **more)
        self._writes: dict[str, tuple[str, ...]] = {}
        self.presets: dict[str, str] = {}  # what --config also takes: name -> file

    def common(self) -> None:
        """Add what every command has: --config, --print_config and -q."""
        configs = "YAML, JSON or TOML file of these options; options on the command line win"
        self.add_argument("--config", action=ConfigFile, help=configs)
        self._option_string_actions["--print_config"].help = "print the options in force, as YAML, and exit"
        self.add_argument("-q", "--quiet", action="store_true", help="print only warnings and errors")

    def shared(self, *names: str, **changed: Any) -> None:
        """Add options of SHARED; changed: what is different here, as `option` takes it."""
        for name in names:
            self.option(name, **{**dict(zip(("kind", "help", "default"), SHARED[name], strict=False)), **changed})

    def option(self, name: str, kind: Any, help: str, default: Any = None, **more: Any) -> None:
        """Add --NAME; left out it is the default, or None, unless it is required. A kind of None is a flag."""
        how = {"action": "store_true"} if kind is None else {"type": kind, "default": default}
        self.add_argument(f"--{name}", help=help, **how, **more)

    def output(self, name: str, help: str, default: Any = None, **more: Any) -> None:
        """Add --NAME, which names a file to write."""
        self.option(name, str, help, default, **more)
        self.writes(name)

    def fields(self, kind: Any, title: str | None = None, other_names: Mapping[str, list[str]] | None = None) -> None:
        """Add every field of a configuration, a dataclass of `described` fields, as an option.

        title: of the group of options that they form; other_names: field -> more flags for it
        """
        group = self if title is None else self.add_argument_group(title, (kind.__doc__ or "").strip())
        for field in dataclasses.fields(kind):
            if field.name in COMPUTING:
                continue
            flags = [f"--{field.name}", *(other_names or {}).get(field.name, [])]
            default: Any = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            options = {"type": _without_none(field.type), "default": default, "help": field.metadata["help"]}
            if isinstance(default, tuple):
                options |= {"type": typing.get_args(field.type)[0], "default": list(default), "nargs": "*"}
            group.add_argument(*flags, dest=field.name, **options)

    def writes(self, option: str, *files: str) -> None:
        """Declare that `option` names a file to write, or a folder for these `files`."""
        self._writes[option] = files

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
            for file in files or [""]
        ]
        inputs = [(name, file) for name in READ if name not in self._writes for file in _files_read(arguments, name)]
        for (name, file), (other, path) in [*itertools.product(outputs, inputs), *itertools.combinations(outputs, 2)]:
            if replaces(file, path):
                what = "also written" if other in self._writes else "read"
                where = "holds" if os.path.isdir(file) else "is the same file as"
                raise ElmoFastError(f"{name} {file!r} {where} {other} {path!r}, which is {what}; choose another output")

    def about(self, error: Exception, arguments: Any) -> str:
        """Return the error as a sentence, after the name of the one option whose value it names or begins with."""
        sentence, file = sentence_of(error) if isinstance(error, OSError) else str(error), getattr(error, "filename", 0)
        options = [
            f"--{name}" if f"--{name}" in self._option_string_actions else name
            for name in vars(arguments)
            for each in _values(arguments, name)
            if each == file or sentence.startswith(f"{each}: ")
        ]
        return f"{options[0]}{':' if file else ''} {sentence}" if len(options) == 1 else sentence

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write the message; argparse's own swallows errors: a closed pipe or a full disk would look like success."""
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error in one line, and how to list the options; exit with status 2."""
        parser, message = getattr(ex, "subcommand_parser", None) or self, choices_named(" ".join(message.split()))
        print(f"{parser.prog}: error: {message}", file=sys.stderr)
        print(f"{parser.prog} --help lists the options", file=sys.stderr)
        self.exit(2)


def choices_named(message: str) -> str:
    """Return jsonargparse's message about a value that is no choice in words, with the nearest choices; others stay."""
    literal = r"typing\.Literal(\[[^\]]+\])"
    union = rf".* Subtypes: \[{literal}, <class 'NoneType'>\] .*Given value: (.*)"
    parts = re.fullmatch(
        rf'Parser key "([^"]+)":(?: Expected a {literal}\. Got value: (.*)|{union})', message, re.DOTALL
    )
    if parts is None:
        return message
    name, choices = parts[1].rpartition(".")[2], ast.literal_eval(parts[2] or parts[4])
    value = (parts[3] or parts[5]).strip()
    return f"--{name} must be one of {', '.join(choices)}; got {value}{did_you_mean(value, choices)}"


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


# The options of all commands that name inputs: a text (a file, a folder or a glob), or a file or folder.
TEXTS = ("train_prefix", "test_prefix")
READ = (
    *TEXTS, "input_file", "corpus", "text", "word_file", "vocab_file", "vectors", "analogies", "pairs", "path",
    "config", "options_file", "weight_file", "softmax_file", "model", "save_dir", "source", "run", "also",
)  # fmt: skip
# What commands read from the folder of a model, a run or a task besides the model, and `embed` from one of tables.
KEPT = (
    "config.json", "metrics.jsonl", "vocab.txt", "vocab.txt.gz", "labels.json", "words.json", "results.json",
    "*.parquet", "*.arrow",
)  # fmt: skip


def _values(arguments: Any, name: str) -> list[str]:
    value = getattr(arguments, name, None)
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each]


def _files_read(arguments: Any, name: str) -> Iterator[str]:
    for value in _values(arguments, name):
        with contextlib.suppress(ElmoFastError, CheckpointError):  # a missing file is reported where it is read
            if name in TEXTS:
                from elmo_fast.text import files_matching

                yield from files_matching(value)
            elif os.path.isdir(value):
                from elmo_fast.checkpoints import model_files

                yield from (path for each in KEPT for path in glob.glob(os.path.join(glob.escape(value), each)))
                yield from map(os.fspath, model_files(value))
            else:
                yield value
