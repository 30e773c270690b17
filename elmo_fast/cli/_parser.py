"""The parser of a command: the fields of a dataclass are its options, jsonargparse reads them, an error is one line."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import jsonargparse
import yaml

from elmo_fast._docstrings import docstrings
from elmo_fast._io.atomic_file import replaces
from elmo_fast._io.fields import MOST_BYTES
from elmo_fast.errors import ElmoFastError, did_you_mean, printable, sentence_of
from elmo_fast.op_choices import FormatIn, InferencePrecision, Tokenizer

# Of the help of several options.
TEXT = "text: one sentence per line, tokens separated by spaces; plain, .gz or .zst; - is the standard input"
WHAT_IS_READ = f"{TEXT}; or as --format_in says"
# The help of options that several commands have, and of fields without a docstring.
SHARED = {
    "quiet": "print only warnings and errors",
    "seed": "random seed",
    "device": "device: cpu, cuda, cuda:1, or auto, which is cuda if torch sees a GPU, else cpu",
    "threads": "number of CPU threads (default: torch's; with a trained model: one per processor that other programs "
    "leave free)",
    "model": "model: a folder or its .zip or .tar.gz, with config.json + safetensors, options.json + HDF5 (also "
    "*_options.json + *_weights.hdf5), a checkpoint of bilm-tf, or ELMoForManyLangs' files; a run's save_dir (if "
    "unfinished: its newest checkpoint); AllenNLP's model.tar.gz; or a name that `elmo-fast models` lists, such as "
    "mini",
    "options_file": "instead of --model: options.json, with --weight_file",
    "weight_file": "HDF5 weights, a bilm-tf checkpoint's .index, or AllenNLP's model.tar.gz; with --options_file",
    "prefix": "which ELMo of an AllenNLP model that contains several: prefix of its tensor names, as listed in the "
    "error message",
    "backend": "backend of the ops: auto, native (C++), triton or reference (plain torch); ops that do not have "
    "it use auto",
    "softmax_file": "HDF5 file with softmax/W and softmax/b, if --weight_file has none",
    "precision": "rounds the operands of matrix products, for speed (see elmo-fast info); float32 rounds nothing",
    "train_prefix": "text to train on: a file (plain, .gz or .zst; text, or a table as --format_in says), a folder of "
    "files, or a glob in quotes: 'news/*.gz'",
    "tokenizer": "tokenizer of the text: at white space; words and punctuation; spaCy's for English; or for logs, "
    "replacing numbers, hex ids, addresses, paths and times by <NUM> ...; with +nfc, of text whose combining marks are "
    "composed (default: the model's, else whitespace; raw text needs basic)",
    "format_in": "format of the text; fasta: residues are tokens, and the first word of a '>' line names the sequence "
    "(in hdf5, the dataset); conllu: forms are tokens, and sent_id names the sentence in the same way; parquet: a "
    "file, or a folder of .parquet files; dataset: a saved folder of Hugging Face's datasets, or a name on the hub; "
    "csv and tsv: the first line names the columns; jsonl: a JSON object per line (default: by the ending, parquet or "
    "dataset if it is such a folder, else text)",
    "column": "of a table (parquet, dataset, csv, tsv, jsonl): the column of the sentences, strings or lists of tokens",
    "split": "with dataset: which split, if it has several",
    "processes": "number of processes that read the text (default: one per core)",
    "ray": "address HOST:PORT of a Ray cluster whose machines share the work and a disk, or auto: this machine's; "
    "tasks of a machine that is lost run again on others",
    "min_count": "leave out words that occur less often",
    "batch_size": "maximum number of sentences per batch (default: 64; on a GPU without carried state 1,024)",
    "max_tokens": "maximum number of tokens per batch, including padding (default: 16,384; with carried state any "
    "number)",
    "topn": "number of results",
    "title": "title of the picture",
    "file_friendly_logging": "print progress as lines also on a terminal, instead of a bar",
}


def option(
    default: Any = dataclasses.MISSING,
    *,
    positional: bool = False,
    writes: Literal["", "file", "stream"] = "",
    **how: Any,
) -> Any:
    """Return a field of a command's options, as one that has a type and a default alone needs none.

    writes: what a command writes there: a file, or a file or with "-" the standard output; how: further arguments of
    argparse's add_argument, such as metavar and nargs
    """
    return dataclasses.field(default=default, metadata={"positional": positional, "writes": writes, "how": how})


def flag(*names: str) -> Any:
    """Return a field that is an option without a value; names: more names of it, such as "-q"."""
    return dataclasses.field(default=False, metadata={"names": names, "how": {"action": "store_true"}})


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(option, flag))
@dataclasses.dataclass(kw_only=True)
class Command:
    """The options of every command, and what it gets besides: the values of `settings`, for configurations.

    Its subclasses are dataclasses too, without a decorator.
    """

    quiet: bool = flag("-q")
    settings: dict[str, Any] = dataclasses.field(init=False, default_factory=dict)

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(kw_only=True)(cls)

    @classmethod
    def add_to(cls, parser: "Parser") -> None:
        """Add the options to a parser; commands override this to add those of a configuration, as `Parser.fields`."""
        parser.fields(cls)


class Running(Command):
    """Where something computes."""

    device: str = "auto"
    threads: int | None = None


class Computing(Running):
    """The options of what computes."""

    seed: int = 0


class ModelNames(Command):
    """A pretrained model, named in one of two ways, and one of several in an archive."""

    model: str | None = None
    options_file: str | None = None
    weight_file: str | None = None
    prefix: str | None = None


class Model(Computing, ModelNames):
    """A pretrained model that runs."""

    precision: InferencePrecision = "float32"


class Reading(Command):
    """How a text is read that may be a table."""

    tokenizer: Tokenizer | None = None
    format_in: FormatIn | None = None
    column: str = "text"
    split: str = "train"
    file_friendly_logging: bool = flag()


class ConfigFile(jsonargparse.ActionConfigFile):
    """jsonargparse's --config, which also reads TOML, pipes and the parser's presets; its errors name the file."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = values if os.path.exists(values) else parser.presets.get(values, values)
        if parser.presets and not os.path.exists(path):
            known = f"presets: {', '.join(parser.presets)}{did_you_mean(path, parser.presets)}"
            raise ElmoFastError(f"--config {path}: neither a file nor a preset; {known}")
        try:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES:,} characters, which are no options")
            if path.endswith(".toml"):
                import tomllib

                text = json.dumps(tomllib.loads(text), default=str)
            options = jsonargparse.get_loader("yaml")(text)
            if not isinstance(options, dict):
                raise ValueError("it must hold options, each as in `seed: 1`")
            names = [action.dest for action in parser._actions]
            if unknown := [name for name in options if name not in names]:
                raise ValueError(f"unknown option {unknown[0]}{did_you_mean(unknown[0], names)}")
            super().__call__(parser, cfg, text, option_string)  # not the path: a pipe can be read only once
            cfg[self.dest][-1] = path
        except OSError as error:
            raise ElmoFastError(f"--config: {sentence_of(error)}") from error
        except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise ElmoFastError(f"--config {path}: {' '.join(str(error).split())}") from error


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser of a dataclass, whose errors are one line."""

    def __init__(self, description: str | None = None, **more: Any) -> None:
        super().__init__(description=description, allow_abbrev=False, formatter_class=HelpFormatter, **more)
        self.presets: dict[str, str] = {}  # what --config also takes: name -> file
        self.configured: list[str] = []  # the options that are fields of a configuration
        self._tuples: list[str] = []
        self._writes: dict[str, str] = {}  # "file" or "stream", of each option that names an output

    def fields(
        self,
        kind: type,
        title: str | None = None,
        other_names: Mapping[str, list[str]] | None = None,
        help: Mapping[str, str] | None = None,
    ) -> None:
        """Add every field of a dataclass as an option.

        The values of a class that is no `Command` are `settings` of the command. Options that exist stay as they are.

        title: of the group of options that they form; other_names: field -> more flags for it; help: of each field, in
        place of its docstring; a field without either has that of SHARED
        """
        group = self if title is None else self.add_argument_group(title, (kind.__doc__ or "").strip())
        sentences = SHARED.copy()
        for base in reversed(kind.__mro__):
            if base.__module__ not in (__name__, "builtins"):  # here SHARED has all
                sentences |= docstrings(base)
        sentences |= help or {}
        fields = [field for field in dataclasses.fields(kind) if field.init]
        if not issubclass(kind, Command):
            self.configured += [field.name for field in fields]
        for field in fields:
            name = field.name
            if name in (action.dest for action in self._actions):
                continue
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            if typing.get_origin(field.type) is tuple:
                self._tuples.append(name)
            if field.metadata.get("writes"):
                self._writes[name] = field.metadata["writes"]
            names = [*field.metadata.get("names", ()), f"--{name}", *(other_names or {}).get(name, [])]
            how = _arguments(field.type, default, dict(field.metadata.get("how", {})))
            how["help"] = how.get("help") or sentences[name]
            if field.metadata.get("positional"):
                group.add_argument(name, **how)
            else:
                group.add_argument(*names, dest=name, required=default is dataclasses.MISSING, **how)

    def values(self, words: list[str]) -> dict[str, Any]:
        """Parse the words after a command's name and return the value of each option, by its name."""
        values = dict(vars(self.parse_args(words)))
        return values | {name: tuple(values[name] or ()) for name in self._tuples}

    def check_outputs(self, values: Mapping[str, Any]) -> None:
        """Raise ElmoFastError if an output would replace an input or another output, or is in a missing folder."""
        outputs = [(name, path) for name in self._writes for path in _texts(values[name])]
        for name, path in outputs:
            if path == "-" and self._writes[name] != "stream":
                raise ElmoFastError(f"{self.named(name)} cannot be the standard output (-): name a file")
            if not os.path.isdir(folder := os.path.dirname(path) or "."):
                raise ElmoFastError(f"{name} {path!r}: there is no folder {folder!r}; create it first")
        outputs = [(name, path) for name, path in outputs if path != "-"]
        defaults = {action.dest: action.default for action in self._actions}  # which name no file
        inputs = [
            (name, file)
            for name, value in values.items()
            if name not in self._writes and value != defaults.get(name)
            for each in _texts(value)
            for file in _files_of(name, each)
            if file == "-" or os.path.exists(file)
        ]
        for (name, file), (other, path) in [*itertools.product(outputs, inputs), *itertools.combinations(outputs, 2)]:
            if replaces(file, path):
                what = "also written" if other in self._writes else "read"
                where = "holds" if os.path.isdir(file) else "is the same file as"
                raise ElmoFastError(f"{name} {file!r} {where} {other} {path!r}, which is {what}; choose another output")

    def about(self, error: Exception, values: Mapping[str, Any]) -> str:
        """Return the error as a sentence, after the name of the one option whose value it names or begins with."""
        sentence = sentence_of(error) if isinstance(error, OSError) else self.in_options(str(error))
        file = getattr(error, "filename", None)
        options = [
            self.named(name)
            for name, value in values.items()
            for each in _texts(value)
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

    def named(self, name: str) -> str:
        """Return --NAME for an option, and the name of a positional argument as it is."""
        return f"--{name}" if f"--{name}" in self._option_string_actions else name

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write the message; argparse's own swallows errors: a closed pipe or a full disk would look like success."""
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error in one line, with the option nearest to an unknown one; exit with status 2."""
        options = [word.strip(":,'\"").partition("=")[0] for word in message.split() if word.startswith("--")]
        unknown = [name for name in options if name not in self._option_string_actions]
        hint = did_you_mean(unknown[0], self._option_string_actions) if unknown else ""
        print(f"{self.prog}: error: {printable(' '.join(message.split()))}{hint}", file=sys.stderr)
        print(f"{self.prog} --help lists the options", file=sys.stderr)
        self.exit(2)


def _arguments(kind: Any, default: Any, how: dict[str, Any]) -> dict[str, Any]:
    """Return argparse's arguments for a field of this type and default; how: further ones."""
    arguments: dict[str, Any] = {} if default is dataclasses.MISSING else {"default": default}
    if typing.get_origin(kind) is tuple:
        if "default" in arguments:
            arguments["default"] = list(default)
        return arguments | {"type": typing.get_args(kind)[0], "nargs": "*"} | how
    kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
    if default is None and len(kinds) == 1:
        kind = kinds[0]  # jsonargparse takes None where it is the default, and its errors are shorter without
    if typing.get_origin(kind) is Literal:
        arguments |= {"type": str, "choices": typing.get_args(kind)}
    elif "action" not in how:
        arguments["type"] = kind
    return arguments | how


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


def _texts(value: Any) -> list[str]:
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each]


def _files_of(name: str, value: str) -> list[str]:
    """Return the files that an option names: those of a text, of a model's folder, or one."""
    from elmo_fast.checkpoints import model_files
    from elmo_fast.text import files_matching

    with contextlib.suppress(ElmoFastError):  # a missing file is reported where it is read
        if name.endswith("_prefix"):
            return files_matching(value)
        if os.path.isdir(value):
            return [os.fspath(file) for file in model_files(value)]
    return [value]
